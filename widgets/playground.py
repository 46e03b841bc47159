"""The base of every playground: a trace goes in, a picture that one can step through comes out.

A subclass names its script and turns an engine trace into plain data; the browser draws that data and needs no answer
from Python to do so. A new playground is one Python file and one JS file, as `widgets/tour.py` and `static/tour.js`.
"""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import anywidget
import traitlets

from widgets.bundle import bundle, style
from widgets.figures import PNG_SCALE, png_size

Value = bool | int | float | str
"""What a state trait holds: a value of JSON that Python writes alike."""


@dataclass(frozen=True)
class Preset:
    """A named state with a surprise in it. `ask` says what to look at; `values` are the state it sets, such as step."""

    name: str
    ask: str
    values: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Badge:
    """Where a playground's numbers come from, and the words of the badge's tooltip."""

    kind: Literal["quoted", "computed", "simulated", "measured", "recorded"]
    source: str


class Playground(anywidget.AnyWidget):
    """A picture of a trace with presets, a stepper and a state sentence.

    `step` and `preset` can be set and observed; `preset` is "" where none holds. Choosing a preset sets its values.
    A subclass gives the class variables and `sentence`, `text_picture` and `png`, and passes its data to `__init__`.
    A further state trait is declared as a traitlets trait and named in `fields`; its name is also the constructor's.
    Setting it, by hand or from Python, keeps the preset; so does a step, unless `keeps_preset` is False.
    """

    title: ClassVar[str]
    lab: ClassVar[str]
    ask: ClassVar[str]
    badge: ClassVar[Badge]
    script: ClassVar[str]
    given: str = ""
    """The variable that the code line passes first, where the playground shows the learner's own data."""
    fields: ClassVar[tuple[str, ...]] = ("preset", "step")
    keeps_preset: ClassVar[bool] = True
    """True where a preset is a scene that one steps inside; False where it is a place that one steps away from."""

    step = traitlets.Int(0).tag(sync=True)
    preset = traitlets.Unicode("").tag(sync=True)
    _spec = traitlets.Dict().tag(sync=True)
    _trace = traitlets.Dict().tag(sync=True)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if "script" in cls.__dict__:  # traitlets makes further subclasses when traits are added to an object
            cls._esm, cls._css = bundle(cls.script), style()
        super().__init_subclass__(**kwargs)

    def __init__(self, trace: Mapping[str, Any], presets: Sequence[Preset], **state: Value | None) -> None:
        """Show `trace`. `state` names values to start from; without any, the first preset is shown."""
        given = {name: value for name, value in state.items() if value is not None}
        unknown = sorted(set(given) - set(self.fields))
        if unknown:
            raise TypeError(f"{type(self).__name__} has no state {', '.join(unknown)}; it has {', '.join(self.fields)}")
        self._presets = {preset.name: preset for preset in presets}
        self._applying = False
        super().__init__(_trace=dict(trace), _spec=self._make_spec())
        if "preset" in given or not given:
            self.preset = str(given.pop("preset", next(iter(self._presets), "")))
        for name, value in given.items():
            setattr(self, name, value)

    def _make_spec(self) -> dict[str, Any]:
        presets = [{"name": p.name, "ask": p.ask, "values": dict(p.values)} for p in self._presets.values()]
        return {
            "name": type(self).__name__,
            "given": self.given,
            "title": self.title,
            "lab": self.lab,
            "ask": self.ask,
            "badge": {"kind": self.badge.kind, "source": self.badge.source},
            "fields": list(self.fields),
            "keepsPreset": self.keeps_preset,
            "presets": presets,
        }

    # What a subclass gives ------------------------------------------------------------------------------------------

    @property
    def sentence(self) -> str:
        """The state in one sentence, its parts joined by " · "; the browser shows the same."""
        raise NotImplementedError

    def text_picture(self) -> str:
        """A small picture in plain letters, the same on every machine."""
        raise NotImplementedError

    def png(self) -> bytes:
        """The picture as a PNG, drawn from the same data."""
        raise NotImplementedError

    def step_count(self) -> int:
        """How many steps the current state has."""
        return len(self._trace["steps"])

    # State ----------------------------------------------------------------------------------------------------------

    @property
    def presets(self) -> tuple[str, ...]:
        """The names that `preset` takes."""
        return tuple(self._presets)

    @property
    def code(self) -> str:
        """The line of Python that recreates the state: the preset, and the values that it does not set."""
        preset = self._presets.get(self.preset)
        sets: Mapping[str, Value] = preset.values if preset else {}
        state = {name: getattr(self, name) for name in self.fields if name != "preset"}
        shown = {name: value for name, value in state.items() if not preset or sets.get(name) != value}
        named = {"preset": preset.name, **shown} if preset else shown
        arguments = [*([self.given] if self.given else []), *(f"{n}={_literal(v)}" for n, v in named.items())]
        return f"{type(self).__name__}({', '.join(arguments)})"

    @traitlets.validate("step")
    def _check_step(self, proposal: Any) -> int:
        step, count = proposal["value"], self.step_count()
        if not 0 <= step < count:
            raise traitlets.TraitError(f"step is {step}, expected 0 to {count - 1}")
        return int(step)

    @traitlets.validate("preset")
    def _check_preset(self, proposal: Any) -> str:
        name = proposal["value"]
        if name and name not in self._presets:
            raise traitlets.TraitError(f'preset is "{name}", expected one of: {", ".join(self._presets)}')
        return str(name)

    @traitlets.observe("preset")
    def _apply_preset(self, change: Any) -> None:
        preset = self._presets.get(change["new"])
        if preset is None or self._applying:
            return
        with self._as_one(), self.hold_sync():
            for name, value in preset.values.items():
                setattr(self, name, value)

    @traitlets.observe("step")
    def _leave_preset(self, change: Any) -> None:
        preset = self._presets.get(self.preset)
        if preset is None or self._applying or self.keeps_preset:
            return
        if preset.values.get("step") != change["new"]:
            self.preset = ""

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Take a state from the browser as it is: its values already belong together."""
        with self._as_one():
            super().set_state(sync_data)

    @contextmanager
    def _as_one(self) -> Iterator[None]:
        before, self._applying = self._applying, True
        try:
            yield
        finally:
            self._applying = before

    # Display --------------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"{self.sentence}\n\n{self.text_picture()}"

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Text and PNG for readers without a live widget, and the view for those who have one; data, metadata."""
        picture = self.png()
        width, height = png_size(picture)
        data: dict[str, Any] = {"text/plain": repr(self), "image/png": base64.b64encode(picture).decode("ascii")}
        if self.comm is not None:
            view = {"version_major": 2, "version_minor": 0, "model_id": self.model_id}
            data["application/vnd.jupyter.widget-view+json"] = view
        return data, {"image/png": {"width": width // PNG_SCALE, "height": height // PNG_SCALE}}


def _literal(value: Value) -> str:
    """A value as Python and the browser both write it: True, 0.5, 1 for 1.0, "text"."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return repr(value) if isinstance(value, bool) else json.dumps(value, ensure_ascii=False)
