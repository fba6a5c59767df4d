"""Input and output offsets in one commit: a line gives any number of words, and each of them is written once.

    python examples/flows/offsets_together.py [--servers HOST:PORT] [--spark]

How much was written no longer says how much was read. The commit has both; who goes on from it makes the same words
again, and leaves out as many as stand in the output already.
"""

from demo import show

from oncelog.flow import Flow, Sent, Topic, text

lines = Topic("words.lines", text, text, partitions=2)
words = Topic("words.words", text, text, partitions=2)

flow = Flow("words", version="1")
flow.read(lines).filter(lambda line: not line.startswith("#")).flat_map(str.split).write(words)

outputs = (words,)


def records(day: int = 0) -> list[Sent]:
    text_of_day = ["to be or not to be", "# a remark", f"that is question {day}", ""]
    return [lines.sent(f"line {number}", line) for number, line in enumerate(text_of_day)]


if __name__ == "__main__":
    show(flow, records(), *outputs)
