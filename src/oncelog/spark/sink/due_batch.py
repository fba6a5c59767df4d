"""A batch as one task finds it: what the topic of its sink has about it, and what the task is to do."""

from oncelog.spark.options import SinkOptions
from oncelog.spark.sink import milestones
from oncelog.spark.sink.claiming import Claims
from oncelog.spark.sink.deciding import Doing, decide
from oncelog.spark.sink.errors import MayPass
from oncelog.spark.sink.lane import LaneTask
from oncelog.spark.sink.milestones import reached
from oncelog.spark.sink.option_checking import lane_properties
from oncelog.spark.sink.sink_register import SinkRegister
from oncelog.spark.sink.warm_worker import Cluster, cluster, read_on


class DueBatch:
    """`register` is replaced, and `doing` decided, here and nowhere else."""

    def __init__(self, options: SinkOptions, place: LaneTask, connected: Cluster | None = None) -> None:
        self.options = options
        self.place = place
        self.sink = options.sink_name or options.job_id or place.query
        self.reached(milestones.BEGUN)
        self.connected: Cluster = connected or cluster(lane_properties(options))
        self.topic = self.connected.log(self.sink)
        self.register = SinkRegister()
        self.doing = Doing.BEGIN

    def reached(self, step: str, **facts: object) -> None:
        place = self.place
        reached(step, sink=self.sink, batch=place.batch, lane=place.lane, attempt=place.attempt, **facts)

    def read(self) -> SinkRegister | None:
        """The register in the topic of the sink; None where there is no such topic."""
        batch = self.place.batch
        is_first = batch == (self.options.first_batch or 0)
        return read_on(self.connected, self.sink, batch=batch, is_expected=not is_first)

    def begin(self, found: SinkRegister | None) -> None:
        """Decide by what was read. A sink that nobody owns is claimed first."""
        run, topic = self.connected.run, self.topic
        if found is None:
            self._decide()  # refuses before a topic is made
            run(topic.create())
            found = read_on(self.connected, self.sink)
        self.take(self.register if found is None else found)
        if self.doing is Doing.BEGIN:
            run(topic.check_config())
            run(self.claims.sink(self.sink, in_transactions=self.options.transactional_batches))
            self.doing = self._decide()

    def take(self, register: SinkRegister) -> None:
        """Go by this register from now on."""
        self.register = register
        self.doing = self._decide()

    def check(self) -> None:
        """Raises MayPass where another driver has saved the batch, as records read meanwhile may show."""
        if self._decide() is not Doing.WRITE:
            raise MayPass(
                f"batch {self.place.batch} of sink {self.sink!r} was saved by another driver while this task ran it"
            )

    @property
    def claims(self) -> Claims:
        return Claims(self.topic, self.register, self.connected.destination, self.place)

    def _decide(self) -> Doing:
        place, options = self.place, self.options
        return decide(
            self.register,
            self.sink,
            place.query,
            place.batch,
            options.first_batch,
            in_transactions=options.transactional_batches,
        )
