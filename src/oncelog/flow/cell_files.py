"""The files of a cell's plan: which have rows, and when they are finished."""

from oncelog.flow.cell_context import CellContext
from oncelog.flow.formats import Range
from oncelog.flow.messages import FinishFiles, HourRows, WriteRows


def file_name(stage: str, cell: int, plan: Range, folder: str, *, is_late: bool) -> str:
    return f"{folder}/{stage}-{cell}-{plan.first}-{plan.end}{'-late' if is_late else ''}.parquet"


class CellFiles:
    def __init__(self, context: CellContext) -> None:
        self._context = context
        self.names: set[str] = set()  # that have rows and are not finished
        self.is_finishing = False

    def write(self, found: HourRows, plan: Range) -> None:
        """The plan's only range of records says what the file is called."""
        stage = self._context.stage
        name = file_name(stage.name, stage.cell, plan, found.folder, is_late=found.is_late)
        self.names.add(name)
        self._context.waits(found.rows.nbytes)
        self._context.ask(WriteRows(name, found.rows))

    def finish(self, plan: Range, until_ms: int) -> None:
        """All that the plan has is written, or asked for."""
        self.is_finishing = True
        stage = self._context.stage
        (source,) = stage.inputs
        about = {
            "oncelog.flow": stage.flow,
            "oncelog.stage": stage.name,
            "oncelog.topic": source.topic,
            "oncelog.topic.id": source.topic_id,
            "oncelog.partition": f"{stage.cell}",
            "oncelog.offsets": f"{plan.first}-{plan.end}",
        }
        self._context.ask(FinishFiles(about, self._context.monotonic(until_ms)))

    def finished(self) -> None:
        self.names.clear()
        self.is_finishing = False
