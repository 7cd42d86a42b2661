"""Unique ids for jobs of a log that uses some of them twice."""


class Ids:
    """The ids given out so far."""

    def __init__(self) -> None:
        self._uses: dict[str, int] = {}

    def __contains__(self, id: str) -> bool:
        return id in self._uses

    def take(self, id: str) -> str:
        """The id itself if it is free, else the first of id#2, id#3, ... that is."""
        if id not in self._uses:
            self._uses[id] = 1
            return id
        while True:
            self._uses[id] += 1
            name = f"{id}#{self._uses[id]}"
            if name not in self._uses:
                self._uses[name] = 1
                return name
