"""Faust counts words in a table with a changelog, grouped by another key; it runs until killed."""

import sys

import faust

address, source, target, count, data = sys.argv[1:]
sys.argv[1:] = ["worker", "--loglevel", "warn", "--without-web"]
app = faust.App("counts", broker=f"kafka://{address}", store="memory://", datadir=data)


class Word(faust.Record):
    """A word of a text."""

    word: str


words = app.topic(source, value_type=Word)
totals = app.topic(target)
counts = app.Table("counts", default=int)


@app.agent(words)
async def count_words(stream):
    async for each in stream.group_by(Word.word):
        counts[each.word] += 1
        await totals.send(key=each.word, value=counts[each.word])


@app.task
async def send_words():
    for number in range(int(count)):
        await words.send(key=str(number), value=Word(word="abcde"[number % 5]))


app.main()
