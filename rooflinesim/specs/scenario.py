"""Parallel layout, number formats and expert routing of one deployment."""

from __future__ import annotations

from pydantic import Field, field_validator

from rooflinesim.specs.base import Frozen

#: Larger batches and contexts are slips of the keyboard.
MOST = 1_000_000_000


class Parallel(Frozen):
    """Ranks: ``tp`` splits matrices, ``dp`` splits the batch over attention replicas, ``pp`` splits layers.

    ``ep`` splits the experts over the tp*dp ranks of a stage; what is left of those ranks shards each expert.
    """

    tp: int = Field(1, ge=1)
    ep: int = Field(1, ge=1)
    pp: int = Field(1, ge=1)
    dp: int = Field(1, ge=1)

    @property
    def n_gpus(self) -> int:
        """Devices in all."""
        return self.tp * self.dp * self.pp

    @property
    def moe_tp(self) -> int:
        """Ranks that share one expert."""
        return max(1, self.tp * self.dp // self.ep)


class Formats(Frozen):
    """Number formats. ``weights`` is that of the linear layers; head and router stay in ``activations``."""

    weights: str = "bf16"
    experts: str | None = None  # None: same as weights
    activations: str = "bf16"
    kv: str = "bf16"
    draft_weights: str | None = None
    draft_kv: str | None = None
    head: str | None = None  # None: same as activations


class Routing(Frozen):
    """How tokens choose experts.

    ``skew`` is the exponent s of popularity ∝ rank^-s (0: uniform). ``overlap`` is the measured share of
    experts that consecutive tokens of a sequence have in common; ``None`` means chance (top_k / n_experts).
    """

    skew: float = Field(0.0, ge=0.0, le=3.0)
    overlap: float | None = Field(None, ge=0.0, le=1.0)


class Scenario(Frozen):
    """What a user asks: names and numbers, before anything is looked up. Every field has a stated default."""

    gpu: str = "h100-sxm"
    model: str = "llama-3.1-8b"
    draft: str = "auto"
    engine: str = "vllm"
    tp: int = Field(1, ge=1, le=1024)
    ep: int = Field(1, ge=1, le=1024)
    pp: int = Field(1, ge=1, le=64)
    dp: int = Field(1, ge=1, le=1024)
    draft_tp: int | None = Field(None, ge=1, le=1024)
    weights: str | None = None  # None: as the checkpoint was released
    experts: str | None = None
    kv: str = "auto"  # auto: the activation format
    draft_weights: str | None = None
    batch_sizes: tuple[int, ...] = (64,)
    context_tokens: tuple[int, ...] = (1024,)
    k_max: int = Field(8, ge=0, le=64)
    accept: str | None = None  # C1[,DECAY]
    al: str | None = None  # K:AL
    marginal: str | None = None
    conditional: str | None = None
    accept_file: str | None = None
    accept_by_ctx: str | None = None  # CSV: one acceptance form per row of context_tokens
    workload: str = "mixed"
    skew: float = Field(0.0, ge=0.0, le=3.0)
    overlap: float | None = Field(None, ge=0.0, le=1.0)
    max_num_seqs: int | None = Field(None, ge=1)
    graphs: bool = True
    ideal: bool = False
    draft_kv_budget_tokens: int | None = Field(None, ge=1)
    verify_curve: str | None = None  # CSV of measured verify seconds
    calibration: str | None = None  # YAML of one's own fit

    @field_validator("batch_sizes", "context_tokens")
    @classmethod
    def _positive(cls, values: tuple[int, ...]) -> tuple[int, ...]:
        if not values or any(v < 1 for v in values):
            raise ValueError("needs one or more whole numbers >= 1")
        if max(values) > MOST:
            raise ValueError(f"holds {max(values)}, at most {MOST:,} is meaningful")
        return values

    @field_validator("weights", "experts", "kv", "draft_weights")
    @classmethod
    def _any_case(cls, value: str | None) -> str | None:
        return None if value is None else value.strip().lower().replace("_", "-")
