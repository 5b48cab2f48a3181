"""The readers under atheris: ``python -m tests.hostile.fuzz READER [libFuzzer options]``; their names without one."""

import sys
import tempfile
from contextlib import suppress
from pathlib import Path


def main() -> None:
    if len(sys.argv) == 1:
        from tests.hostile.readers import READERS

        print("\n".join(READERS))
        return
    import atheris

    with atheris.instrument_imports(include=["buckler"]):
        from buckler.errors import BucklerError
        from tests.hostile.readers import READERS, seeds

    name = sys.argv[1]
    reader = READERS[name]
    corpus = Path(tempfile.mkdtemp(prefix=f"buckler-fuzz-{name}-"))
    for number, seed in enumerate(seeds(name)):
        (corpus / str(number)).write_bytes(seed)

    def once(data: bytes) -> None:
        with suppress(BucklerError):
            reader(data)

    options = ["-rss_limit_mb=3000", "-timeout=30", "-print_final_stats=0", "-verbosity=0", *sys.argv[2:]]
    atheris.Setup([sys.argv[0], str(corpus), *options], once)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
