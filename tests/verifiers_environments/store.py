"""A tool environment: look a price up, order what the customer can pay, and say so."""

import json

import verifiers.v1 as vf
from pydantic import Field

PRICES = {"apple": 3, "bread": 5, "candle": 7, "drum": 40, "easel": 25, "flute": 60}


class StoreState(vf.State):
    orders: dict[str, int] = Field(default_factory=dict)


class StoreToolset(vf.Toolset[vf.ToolsetConfig, StoreState]):
    TOOL_PREFIX = None

    async def setup_task(self, task) -> None:
        self.names = set(task.stock)

    @vf.tool
    async def price(self, item: str) -> str:
        """Return the price of an item in coins."""
        if item not in self.names:
            raise ValueError(f"there is no {item}")
        return str(PRICES[item])

    @vf.tool
    async def order(self, item: str, amount: int) -> str:
        """Order an amount of an item."""
        if item not in self.names or amount < 1:
            raise ValueError("no such order")
        self.state.orders = {**self.state.orders, item: self.state.orders.get(item, 0) + amount}
        return "ordered"


class StoreData(vf.TaskData):
    answer: dict[str, int]
    stock: list[str]
    turns: list[str]


class StoreTask(vf.Task[StoreData, StoreState]):
    @classmethod
    def toolsets(cls, config):
        return [StoreToolset(vf.ToolsetConfig())]

    @vf.reward
    async def ordered(self, trace: vf.Trace) -> float:
        return float(trace.state.orders == self.data.answer)

    @vf.metric
    async def calls(self, trace: vf.Trace) -> float:
        return float(len(trace.tool_messages))


class StoreTaskset(vf.Taskset[StoreTask, vf.TasksetConfig]):
    def load(self):
        for item, price in PRICES.items():
            for coins in range(60, 160):
                amount = coins // price
                calls = [{"name": "price", "arguments": {"item": item}}]
                calls.append({"name": "order", "arguments": {"item": item, "amount": amount}})
                yield StoreTask(
                    StoreData(
                        system_prompt="You serve customers by calling tools.",
                        prompt=f"I have {coins} coins. Order as many of the item {item} as they pay for.",
                        answer={item: amount},
                        stock=list(PRICES),
                        turns=[*(f"```json\n{json.dumps(call)}\n```" for call in calls), "It is ordered."],
                    ),
                    self.config.task,
                )


__all__ = ["StoreTaskset"]
