"""An environment that is broken in the way that its setting names."""

import asyncio
import os
import socket
import subprocess
from pathlib import Path

import verifiers.v1 as vf


class BadConfig(vf.TasksetConfig):
    kind: str


class BadData(vf.TaskData):
    answer: str | None = None
    kind: str = ""


def no_schema(thing: socket.socket) -> str:
    """Take what JSON has no type for."""
    return str(thing)


class BadToolset(vf.Toolset[vf.ToolsetConfig]):
    def register(self, mcp) -> None:
        mcp.add_tool(no_schema)


class BadTask(vf.Task[BadData]):
    @classmethod
    def toolsets(cls, config):
        return [BadToolset(vf.ToolsetConfig())] if cls is SchemalessTask else []

    @vf.reward
    async def good(self, trace: vf.Trace) -> float:
        match self.data.kind:
            case "raises" if "crash" in trace.last_reply:
                raise ZeroDivisionError("no sum")
            case "nan":
                return float("nan")
            case "file":
                Path("/etc/passwd").read_text()
            case "socket":
                socket.create_connection(("127.0.0.1", 1))
            case "program":
                subprocess.run(["true"], check=True)
            case "exits" if "crash" in trace.last_reply:
                os._exit(3)
            case "waits":
                await asyncio.Event().wait()
        return 1.0


class SchemalessTask(BadTask):
    pass


class BoxedTask(BadTask):
    NEEDS_CONTAINER = True


class ProgramTask(BadTask):
    @vf.reward
    async def built(self, trace: vf.Trace, runtime: vf.Runtime) -> float:
        return 1.0


KINDS = {"schemaless": SchemalessTask, "boxed": BoxedTask, "runtime": ProgramTask}


class BadTaskset(vf.Taskset[BadTask, BadConfig]):
    def load(self):
        for number in range(0 if self.config.kind == "empty" else 20):
            if self.config.kind == "torn" and number == 3:
                BadData(prompt=["nothing"])
            data = BadData(
                prompt=f"Task {number}",
                answer="" if (self.config.kind, number) == ("unanswered", 4) else "x",
                kind=self.config.kind,
            )
            yield KINDS.get(self.config.kind, BadTask)(data, self.config.task)


__all__ = ["BadTaskset"]
