"""From stories of one document to the values of a file; turns that are no use for training are left out on request (pure).

What was filtered is not what its source said, so it is written in the canonical form of the target, without residuals.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from chronicle.formats import hub, jsontext
from chronicle.formats.story import StorylineDocument, Turn
from chronicle.options import ExportOptions
from chronicle.reports import ExportReport

MARKDOWN = "agenticmd"
PARQUET = "parquet"
FORMATS = (*hub.FORMATS, MARKDOWN, PARQUET)
"""Names that `export --format` takes."""


class Documents(msgspec.Struct, frozen=True):
    """Makes texts of documents, and counts them."""

    options: ExportOptions
    report: ExportReport

    def texts(self, stories: Sequence[StorylineDocument], *, in_part: bool = False) -> list[bytes]:
        """The values of one document in the format that is asked for; none where no turn of it is left.

        `in_part`: the document held more stories than these, so what it said as a whole cannot be said again.
        """
        options = self.options
        assert options.format is not None
        if options.is_filtered:
            stories = [self.without_spare_turns(story) for story in stories]
            if not any(story.turns for story in stories):
                self.report.skipped.append(f"session {stories[0].session}: no turn is left")
                return []
        self.report.documents += 1
        self.report.stories += len(stories)
        residual: hub.Carry = "drop" if in_part or options.is_filtered else "carry"
        return hub.document_texts(options.format, stories, profile=options.profile, residual=residual)

    def without_spare_turns(self, story: StorylineDocument) -> StorylineDocument:
        """The story without what the options leave out; it does not know its origin any more."""
        kept = [turn for turn in story.turns if not self._is_spare(turn)]
        self.report.turns_left_out += len(story.turns) - len(kept)
        return msgspec.structs.replace(story, turns=kept, origin=None, residual=None)

    def _is_spare(self, turn: Turn) -> bool:
        """Copied from an earlier run, or a turn of the agent that no model made (atif.md 3: training must skip both)."""
        if self.options.skip_copied and turn.copied:
            return True
        return self.options.skip_zero_llm and turn.src == "agent" and turn.nllm == 0


def one_file(options: ExportOptions, stories: Sequence[StorylineDocument]) -> Sequence[StorylineDocument]:
    """The stories so that their document can stand in a file of its own: lines of rows become an array."""
    origin = stories[0].origin
    if origin is None or origin.form != "A:lines" or origin.format != options.format:
        return stories
    return [_in(story, "array") for story in stories]


def json_lines(options: ExportOptions, stories: Sequence[StorylineDocument]) -> Sequence[StorylineDocument]:
    """The stories so that their document can stand in JSON lines: rows stand on lines of their own."""
    return [_in(story, "jsonl") for story in stories] if options.format == "openai_msg" else stories


def frame_of(stories: Sequence[StorylineDocument], texts: Sequence[bytes]) -> hub.Frame:
    """What stands around the values of one document in a file of its own."""
    origin = stories[0].origin
    rows = origin is not None and origin.form == "A:lines" and origin.container == "array"
    return hub.frame("array" if rows else "object", len(texts) > 1)


def line_of(format: str, text: bytes) -> bytes:
    """A value as a line; rows of OpenAI messages are several lines already."""
    return text if format == "openai_msg" else jsontext.one_line(text)


def _in(story: StorylineDocument, container: str) -> StorylineDocument:
    if story.origin is None or story.origin.container == container:
        return story
    return msgspec.structs.replace(story, origin=msgspec.structs.replace(story.origin, container=container))
