"""The format `oncelog`: what Spark asks for a reader or a writer. Each is found when it is asked for, because Spark
makes this class in many processes that need only one of them."""

from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from oncelog.spark.sentences import in_sentences


@in_sentences
class OncelogDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "oncelog"

    def schema(self) -> Any:
        from oncelog.spark.source.columns import schema

        return schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from oncelog.spark.source.reader import Reader

        return Reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from oncelog.spark.source.stream import StreamReader

        return StreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from oncelog.spark.sealed.tasks import writer_of
        from oncelog.spark.sink.batch import BatchWriter

        sealed = writer_of(self.options)
        if sealed is not None:
            return sealed
        return BatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from oncelog.spark.sink.direct import StreamWriter

        return StreamWriter(self.options, schema, overwrite)
