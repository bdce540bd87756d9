"""Runners: what happens to a stage that has to run. DVC says which one that is (flows/dag/dvc_seam.py, `StageRunner`).

    plain_runner     in this process, once: a stage of `dvc repro`, a study's run
    prefect_runner   the same as a task run of Prefect's, with retries
    warm_run         the same in one warm flow run, which MLflow and Prefect's page show as it goes
    run_artifacts    what that page shows, and what a stage prints in the logs of its run
    async_collector  a second process of the warm run, which plays the next rollouts during an update
    pipeline         `loopline run`: all stages by one of these
    single_stage     `python -m flows.stage`: one stage of `dvc repro`, here
    stage_server     ... or in a process that all stages of that `dvc repro` share (stage_client.py asks it)
    prefect_server   a Prefect server for as long as one command lasts
    local_services   `loopline deploy`: server, worker, deployments and schedules of one checkout

Work on other processes and machines is flows/workers.
"""
