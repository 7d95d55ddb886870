"""What needs what in the commands that measure and run for real: calibrate and validate."""

from ppsim.questions.given import MEASURING, MODEL, REQUEST, SHAPE, TIMED, Need

NEEDS = (
    Need(
        ("from_record", "trace", "record"),
        lambda g: sum(map(bool, (g["from_record"], g["trace"], g["record"]))) < 2,
        "{options} cannot be given together",
        commands=("validate",),
    ),
    Need(
        ("only",),
        lambda g: g.writes(),
        "{options} chooses what figures and pages show, and none is written",
        "add -o FILE.svg",
        ("validate",),
    ),
    Need(
        ("iteration", "unit"),
        lambda g: bool(g["trace"]),
        "{options} says how to read --trace, and there is none",
        "leave it out",
        ("validate",),
    ),
    Need(
        ("iteration",),
        lambda g: bool(g["from_trace"]),
        "{options} chooses iterations of --from-trace, and there is none",
        "leave it out",
        ("calibrate",),
    ),
    Need(
        ("names", "schedule", *SHAPE, *REQUEST, "profile"),
        lambda g: not g["from_record"],
        "--from-record runs nothing, so {options} cannot be given too",
        "leave it out",
        ("validate",),
    ),
    Need(
        REQUEST,
        lambda g: not g["trace"],
        "--trace shows a run made elsewhere, so {options} cannot be given too",
        "leave it out",
        ("validate",),
    ),
    Need(
        TIMED,
        lambda g: g["ops"] == "timed",
        "{options} is for ops that only take their time",
        "add --ops timed",
        ("validate",),
    ),
    Need(
        MODEL,
        lambda g: g["ops"] == "compute",
        "{options} is for stages that compute, and --ops timed has none",
        "leave it out",
        ("validate",),
    ),
    Need(
        (*MODEL, "dtype"),
        lambda g: not g["module"],
        "--module brings the model, so {options} cannot be given too",
        "leave one out",
        ("validate", "calibrate"),
    ),
    Need(("module",), lambda g: g["ops"] != "timed", "{options} has stages that compute, and --ops timed has none"),
    Need(
        ("module",),
        lambda g: bool(g["stages"]) or g.command != "calibrate" or bool(g["from_trace"]),
        "{options} is asked for each stage, and how many there are is missing",
        "add --stages 4",
        ("calibrate",),
    ),
    Need(
        ("stages",),
        lambda g: bool(g["module"]),
        "{options} is the number of stages of --module, and there is none",
        "leave it out",
        ("calibrate",),
    ),
    Need(
        MODEL,
        lambda g: not g["profile"],
        "--profile brings the model, so {options} cannot be given too",
        "leave one out",
        ("validate",),
    ),
    Need(
        MEASURING,
        lambda g: not g["from_trace"],
        "--from-trace measures nothing, so {options} cannot be given too",
        "leave it out",
        ("calibrate",),
    ),
    Need(
        ("sizes", "max_bytes"), lambda g: not (g["sizes"] and g["max_bytes"]), "{options} both set the largest message"
    ),
)
