"""The tools of an episode, in its own process: verifiers' toolsets behind MCP's server, without a socket between."""

import json
from typing import Any

from mcp.server.mcpserver import MCPServer
from verifiers.v1.errors import ToolsetError
from verifiers.v1.harnesses.utils.compaction import bound_tool_message
from verifiers.v1.harnesses.utils.mcp import mcp_content_to_chat_content
from verifiers.v1.trace import Trace
from verifiers.v1.types import Tool, ToolCall, ToolMessage, content_text, content_to_parts


class UnusableToolError(ToolsetError):
    """A tool that no policy can be told of: without a schema, or with another's name."""


class Tools:
    """The tools that a policy can call, by name."""

    def __init__(self, toolsets: list[Any], trace: Trace[Any, Any, Any]) -> None:
        self._toolsets, self._trace = toolsets, trace
        self._servers: dict[str, tuple[MCPServer, str]] = {}
        self.schemas: list[Tool] = []

    async def start(self) -> None:
        """Set the toolsets up. Raises UnusableToolError."""
        for toolset in self._toolsets:
            self._share_state(toolset)
            await toolset.setup()
            await toolset.setup_task(self._trace.task.data)
            server = MCPServer(toolset.server_name or type(toolset).__name__)
            try:
                toolset.register(server)
                listed = await server.list_tools()
            except Exception as error:
                raise UnusableToolError(
                    f"a tool of {type(toolset).__name__} has no schema: {' '.join(str(error).split())}"
                ) from None
            for tool in listed:
                self._add(toolset.server_name, server, tool)

    async def call(self, call: ToolCall) -> tuple[ToolMessage, bool]:
        """Return a tool's answer, and whether it is an error."""
        if call.name not in self._servers:
            return _message(call, f"error: unknown tool {call.name!r}"), True
        server, name = self._servers[call.name]
        try:
            result: Any = await server.call_tool(name, json.loads(call.arguments))
        except Exception as error:  # MCP's server answers so as well
            return _message(call, str(error)), True
        return _message(call, mcp_content_to_chat_content(result.content)), bool(result.is_error)

    def _add(self, prefix: str, server: MCPServer, tool: Any) -> None:
        name, schema = f"{prefix}_{tool.name}" if prefix else tool.name, tool.input_schema
        if not isinstance(schema, dict) or schema.get("type") != "object":
            raise UnusableToolError(f"the tool {name} has no schema of an object: {schema!r}"[:300])
        if name in self._servers:
            raise UnusableToolError(f"two tools are called {name}")
        self._servers[name] = server, tool.name
        self.schemas.append(Tool(name=name, description=tool.description or "", parameters=schema))

    def _share_state(self, toolset: Any) -> None:
        """Let a toolset see the rollout's own state, which verifiers sends it over a socket."""

        async def pull() -> Any:
            return self._trace.state

        async def push(before: bytes) -> None:
            return None

        toolset._pull_state, toolset._push_state = pull, push


def _message(call: ToolCall, content: Any) -> ToolMessage:
    message = {"role": "tool", "tool_call_id": call.id, "content": content, "name": call.name}
    found = ToolMessage.model_validate(bound_tool_message(message))
    return found.model_copy(update={"content": content_text(content_to_parts(found.model_dump()["content"]))})
