"""Messages in, tokens out, for any chat template of a Hugging Face tokenizer.

Sampled tokens are never decoded and encoded again: a conversation only grows at its end::

    open(messages)          [prompt ..., generation prompt]
    (the engine samples)    [turn ..., end of turn]
    observe(sampled, ...)   [end of turn if the turn was cut, messages ..., generation prompt]

What stands between two turns is found by rendering a short conversation with a marker in place
of the model's turn, and taking what follows the marker.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from workers.environments.base import Message

_MARKER = "lagoon-turn-marker"


class TemplateError(ValueError):
    """A tokenizer without a chat template, or with one that Lagoon cannot continue."""


class Chat:
    """A tokenizer's chat template, as token ids."""

    def __init__(self, tokenizer: Any) -> None:
        if not getattr(tokenizer, "chat_template", None):
            raise TemplateError("the model's tokenizer has no chat template: use an instruct model")
        self._tokenizer = tokenizer
        self._tool_role = "tool" if self._speaks_tool() else "user"
        # Tools repeat themselves, and a template takes a hundred times longer than a look-up.
        self._after_turn = lru_cache(maxsize=4096)(self._render_after_turn)
        self._end_of_turn = self._find_end_of_turn()
        eos = tokenizer.eos_token_id
        self.stop_token_ids: list[int] = list(
            dict.fromkeys([self._end_of_turn, *([] if eos is None else [eos])])
        )
        """Tokens that end the model's turn."""

    def open(self, messages: Sequence[Message]) -> list[int]:
        """The tokens of the first messages, with the generation prompt."""
        return self._encode(self._render(messages, add_generation_prompt=True))

    def observe(self, sampled_ids: Sequence[int], messages: Sequence[Message]) -> list[int]:
        """What to append after a sampled turn, so that the model can take the next one.

        It starts with the end of turn unless the model wrote it itself.
        """
        appended = self._after_turn(tuple(messages), True)
        is_ended = bool(sampled_ids) and sampled_ids[-1] in self.stop_token_ids
        return list(appended[1:] if is_ended else appended)

    def text(self, sampled_ids: Sequence[int]) -> str:
        """A sampled turn as text, without its end of turn."""
        stops = self.stop_token_ids
        kept = sampled_ids[:-1] if sampled_ids and sampled_ids[-1] in stops else sampled_ids
        text: str = self._tokenizer.decode(list(kept), skip_special_tokens=True)
        return text

    def said(self, text: str) -> list[int]:
        """A turn that the model did not sample, as if it had: its tokens and the end of turn."""
        return [*self._encode(text), self._end_of_turn]

    def _render_after_turn(
        self, messages: tuple[Message, ...], add_generation_prompt: bool
    ) -> list[int]:
        conversation = [Message("user", "?"), Message("assistant", _MARKER), *messages]
        rendered = self._render(conversation, add_generation_prompt=add_generation_prompt)
        _, found, after = rendered.rpartition(_MARKER)
        if not found:
            raise TemplateError("the chat template hides the model's earlier turns")
        return self._encode(after)

    def _find_end_of_turn(self) -> int:
        after = self._after_turn((), False)
        if not after or after[0] not in self._tokenizer.all_special_ids:
            raise TemplateError("the chat template ends the model's turn without a special token")
        return after[0]

    def _speaks_tool(self) -> bool:
        """Whether the template renders a tool's message; the user speaks for it where not."""
        conversation = [Message("user", "?"), Message("assistant", "!"), Message("tool", _MARKER)]
        try:
            rendered = self._apply([_as_dict(message) for message in conversation], False)
        except Exception:  # templates raise errors of their own for roles that they do not know
            return False
        return _MARKER in rendered

    def _render(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> str:
        spoken = [_as_dict(message) for message in messages]
        for message in spoken:
            if message["role"] == "tool":
                message["role"] = self._tool_role
        return self._apply(spoken, add_generation_prompt)

    def _apply(self, messages: list[dict[str, str]], add_generation_prompt: bool) -> str:
        rendered: str = self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=add_generation_prompt
        )
        return rendered

    def _encode(self, rendered: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(rendered, add_special_tokens=False)
        return ids


def _as_dict(message: Message) -> dict[str, str]:
    return {"role": message.role, "content": message.text}
