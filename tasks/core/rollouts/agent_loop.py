"""The agent loop: one episode between a policy and a world, from its opening to its verdict.

It yields the turns that it wants sampled and is sent them, so that it knows nothing of engines, batches, threads,
retries or other episodes: `scheduler` drives many of them at once.
"""

from contextlib import closing

from tasks.core.interfaces.world import ExecutionTimeout, Observation, ReadsThoughts, World
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.rollouts.conversation import Conversation
from tasks.core.rollouts.live_rollout import EpisodeEnd, EpisodeSteps, LiveRollout
from tasks.core.rollouts.play_settings import PlaySettings


def play_episode(rollout: LiveRollout, world: World, chat: ChatFormat, settings: PlaySettings) -> EpisodeSteps:
    """Play one episode of the rollout's task. Blocks while the world works; closes the episode however it ends.

    It adds the turns that it is sent to `rollout.transcript`; the ids that each goes on from are there by then. A turn
    with the stop reason "context" was never sampled. Raises WorldFault, and what is a bug of the world.
    """
    with closing(world.open(rollout.planned.task.task_id, rollout.world_seed)) as episode:
        text_of = chat.whole_turn if isinstance(world, ReadsThoughts) and world.reads_thoughts else chat.answer
        conversation = Conversation(rollout, chat, settings, episode.prompt, text_of)
        while True:
            generation = yield conversation.next_turn()
            if generation.stop_reason == "context":
                return EpisodeEnd("context_limit", episode.evaluate(), settings.judge_unfinished)
            try:
                observation = episode.step(conversation.add_turn(generation))
            except ExecutionTimeout:
                rollout.transcript.add_reply(Observation("", done=True, failed=True))
                if settings.turn_progress:
                    rollout.transcript.add_progress(None)
                return EpisodeEnd("execution_timeout")
            rollout.transcript.add_reply(observation)
            if settings.turn_progress:
                rollout.transcript.add_progress(episode.evaluate().episode_return)
            if observation.done:
                return EpisodeEnd("completed", episode.evaluate(), counts=True)
            if rollout.transcript.played_turns == settings.limits.max_turns:
                return EpisodeEnd("turn_limit", episode.evaluate(), settings.judge_unfinished)
            conversation.add_observation(observation)
