"""A cell while somebody holds it: its parts, each of which alone changes what it has, and the state. The actions of the
table (`actions.py`) work on it.
"""

from collections.abc import Mapping, Sequence

from oncelog.flow.cell_context import CellContext
from oncelog.flow.cell_files import CellFiles
from oncelog.flow.cell_inputs import CellInputs
from oncelog.flow.cell_outputs import CellOutputs
from oncelog.flow.commits import Commits
from oncelog.flow.deadlines import Deadlines
from oncelog.flow.formats import Held
from oncelog.flow.held import outputs_of
from oncelog.flow.journal import Journal
from oncelog.flow.leaving import Leaving
from oncelog.flow.messages import Outputs
from oncelog.flow.own_journal import OwnJournal
from oncelog.flow.states import State
from oncelog.slots import Place


class Holding:
    def __init__(self, context: CellContext, copy: Journal | None) -> None:
        self.state = State.READING  # the table's alone to change
        self.why = ""  # it fails, or ended
        self.context = context
        self.deadlines = Deadlines(context)
        self.journal = OwnJournal(context, copy)
        self.inputs = CellInputs(context)
        self.outputs = CellOutputs(context)
        self.files = CellFiles(context)
        self.commits = Commits(context)
        self.leaving = Leaving(context)

    def fails(self, why: str) -> None:
        self.why = f"{self.context.stage.title}: {why}"

    def send_from_commit(self, held: Sequence[Held], told: Mapping[Place, Outputs]) -> None:
        """Send the outputs in a commit that stands in the journal, and those that follow from it. The next commit says
        that they were sent."""
        for place, outputs in (*map(outputs_of, held), *told.items()):
            self.outputs.send(place, outputs)
            self.commits.progressed()

    @property
    def is_drained(self) -> bool:
        """Everything that was sent stands in the log as it was made, and no file is half done."""
        return self.outputs.is_drained and not self.files.is_finishing

    @property
    def is_time_to_be_told(self) -> bool:
        return not self.leaving.is_wanted and self.inputs.is_time_to_be_told

    @property
    def copy(self) -> Journal | None:
        """A copy for another life to begin with: the state of the last commit that was acknowledged."""
        self.commits.entries.settle()
        return self.journal.content if self.journal.is_sound else None
