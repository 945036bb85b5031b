"""What one row of the table of settings says (settings.py)."""

from __future__ import annotations

from dataclasses import dataclass

from trilogue.node.values import Kind, spell


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table. `minimum`, `maximum` are inclusive; `choices` bound a text."""

    key: str
    kind: Kind
    default: str
    doc: str
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()
    secret: bool = False  # not to be shown

    @property
    def environment_name(self) -> str:
        """The variable that sets it: TRILOGUE_ and the key in capitals."""
        return "TRILOGUE_" + self.key.upper().replace(".", "_").replace("-", "_")

    @property
    def bounds(self) -> str:
        """What is accepted, as people read it."""
        if self.choices:
            return ", ".join(self.choices)
        low = "" if self.minimum is None else spell(self.kind, self.minimum)
        high = "" if self.maximum is None else spell(self.kind, self.maximum)
        if low and high:
            return f"{low} to {high}"
        return f"at least {low}" if low else ""
