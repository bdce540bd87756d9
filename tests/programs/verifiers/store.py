"""An environment of verifiers with a tool: look a price up, and say how many the coins pay for."""

import verifiers.v1 as vf

PRICES = {"apple": 3, "bread": 5}


class Shelf(vf.Toolset[vf.ToolsetConfig, vf.State]):
    TOOL_PREFIX = None

    @vf.tool
    async def price(self, item: str) -> str:
        """Return the price of an item in coins."""
        return str(PRICES[item])


class StoreConfig(vf.TasksetConfig):
    item: str = ""
    coins: int = 0


class StoreData(vf.TaskData):
    answer: int


class StoreTask(vf.Task[StoreData]):
    @classmethod
    def toolsets(cls, config):
        return [Shelf(vf.ToolsetConfig())]

    @vf.reward
    async def counted(self, trace: vf.Trace) -> float:
        return float(trace.last_reply.strip() == str(self.data.answer))


class StoreTaskset(vf.Taskset[StoreTask, StoreConfig]):
    def load(self):
        item, coins = self.config.item, self.config.coins
        prompt = f"I have {coins} coins. How many of the item {item} do they pay for?"
        yield StoreTask(StoreData(prompt=prompt, answer=coins // PRICES[item]), self.config.task)


__all__ = ["StoreTaskset"]

if __name__ == "__main__":  # verifiers serves the tools from a process of their own
    Shelf.run()
