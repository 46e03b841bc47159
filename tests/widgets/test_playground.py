import pytest
import traitlets
from IPython.core.formatters import DisplayFormatter

from widgets.figures import PNG_SCALE, Canvas
from widgets.playground import Badge, Playground, Preset

PRESETS = [Preset("start", "Look here.", {"step": 0}), Preset("middle", "And there.", {"step": 4})]


class Places(Playground):
    """Presets are places that one steps away from."""

    title, lab, ask = "Places", "lab 99", "Step."
    badge = Badge("computed", "counted")
    script = "tour.js"
    keeps_preset = False

    def __init__(self, **state):
        super().__init__({"steps": list(range(10))}, PRESETS, **state)

    @property
    def sentence(self):
        return f"step {self.step} · of ten"

    def text_picture(self):
        return "." * self.step + "^"

    def png(self):
        return Canvas(40, 20).png()


class Scenes(Places):
    """Presets are scenes that one steps inside; `clip` and `cut` are states of their own."""

    keeps_preset = True
    fields = ("preset", "step", "clip", "cut")
    clip = traitlets.Float(1.0).tag(sync=True)
    cut = traitlets.Bool(False).tag(sync=True)


class Own(Scenes):
    """A playground of the learner's own data."""

    given = "weights"


def test_without_arguments_the_first_preset_is_shown():
    assert (Places().preset, Places().step) == ("start", 0)


def test_presets_are_named_and_choosing_one_sets_its_values():
    places = Places()
    assert places.presets == ("start", "middle")
    places.preset = "middle"
    assert places.step == 4


def test_a_step_from_python_leaves_a_place_but_not_a_scene():
    places, scenes = Places(preset="middle"), Scenes(preset="middle")
    places.step = scenes.step = 5
    assert (places.preset, scenes.preset) == ("", "middle")


def test_the_start_can_be_a_step_or_a_preset_and_a_step():
    assert (Places(step=7).preset, Places(step=7).step) == ("", 7)
    scenes = Scenes(preset="middle", step=6, clip=0.5)
    assert (scenes.preset, scenes.step, scenes.clip) == ("middle", 6, 0.5)


@pytest.mark.parametrize(
    ("playground", "line"),
    [
        (Places, 'Places(preset="start")'),
        (lambda: Places(step=7), "Places(step=7)"),
        (
            lambda: Scenes(preset="middle", step=6, clip=0.5),
            'Scenes(preset="middle", step=6, clip=0.5, cut=False)',
        ),
        (lambda: Scenes(step=6, cut=True), "Scenes(step=6, clip=1, cut=True)"),
    ],
)
def test_the_code_recreates_the_state(playground, line):
    first = playground()
    assert first.code == line
    again = eval(first.code)
    assert {name: getattr(again, name) for name in again.fields} == {
        name: getattr(first, name) for name in first.fields
    }


def test_the_code_of_own_data_names_its_variable_first():
    assert Own(step=6).code == "Own(weights, step=6, clip=1, cut=False)"


def test_a_further_state_keeps_the_preset_and_is_set_by_one():
    scenes = Scenes(preset="middle")
    scenes.clip = 0.25
    assert (scenes.preset, scenes.step, scenes.clip) == ("middle", 4, 0.25)
    assert scenes.code == 'Scenes(preset="middle", clip=0.25, cut=False)'


def test_step_and_preset_are_observable():
    places, seen = Places(), []
    places.observe(lambda change: seen.append((change["name"], change["new"])), ["step", "preset"])
    places.preset = "middle"
    assert sorted(seen) == [("preset", "middle"), ("step", 4)]
    places.step = 5
    assert sorted(seen[2:]) == [("preset", ""), ("step", 5)]


@pytest.mark.parametrize("step", [-1, 10])
def test_a_step_outside_is_refused_with_the_range(step):
    places = Places(step=3)
    with pytest.raises(traitlets.TraitError, match=f"^step is {step}, expected 0 to 9$"):
        places.step = step
    assert places.step == 3


def test_an_unknown_preset_is_refused_with_the_names():
    with pytest.raises(traitlets.TraitError, match=r'^preset is "end", expected one of: start, middle$'):
        Places(preset="end")


def test_an_unknown_state_is_refused():
    with pytest.raises(TypeError, match=r"^Places has no state token; it has preset, step$"):
        Places(token=3)


def test_a_state_from_the_browser_is_taken_as_it_is():
    """The browser applies the rules itself; a message may hold a preset and a later step."""
    scenes = Scenes()
    scenes.set_state({"preset": "middle", "step": 9})
    assert (scenes.preset, scenes.step) == ("middle", 9)


def test_display_has_text_png_and_view():
    data, metadata = DisplayFormatter().format(Places(step=2))
    assert data["text/plain"] == "step 2 · of ten\n\n..^"
    assert set(data) == {"text/plain", "image/png", "application/vnd.jupyter.widget-view+json"}
    assert metadata["image/png"] == {"width": 40, "height": 20}


def test_text_holds_no_address_and_is_the_same_for_two_objects():
    assert repr(Places(step=2)) == repr(Places(step=2))


def test_a_canvas_draws_the_same_bytes_twice_and_leaves_no_figure_open():
    import matplotlib.pyplot as plt

    before = plt.get_fignums()

    def drawn():
        canvas = Canvas(200, 100)
        canvas.rect(10, 10, 50, 20, "c1 fill")
        canvas.rect(70, 10, 50, 20, "hatch")
        canvas.line(0, 50, 200, 50, "sel dash")
        canvas.circle(20, 70, 8, "tag")
        canvas.text(40, 70, "5 $ of x_1", "s b")
        return canvas.png()

    first = drawn()
    assert first == drawn()
    assert plt.get_fignums() == before
    assert int.from_bytes(first[16:20], "big") == 200 * PNG_SCALE
