"""Synthetic workflows of any size in the shapes of five scientific applications.

The shapes follow published descriptions of the applications. Run times and sizes are drawn around round
numbers of our own, so that the workflows resemble the real ones without repeating any trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from prudent.core.errors import BadInput, unknown
from prudent.core.seeds import rng_for
from prudent.workflows.activation import Activation, File
from prudent.workflows.workflow import Workflow

_SPREAD = 0.3
"""Deviation of the logarithm of run times and sizes."""


_MB = 1e6


class _WorkflowBuilder:
    """Collects the activations of a workflow; a file has one size for all activations that use it."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.activations: list[Activation] = []

    def given(self, name: str, size_mb: float) -> File:
        """A file that is there from the start."""
        return File(name, self._about(size_mb * _MB))

    def add(self, program: str, runtime_s: float, inputs: Sequence[File], output_mb: float) -> File:
        """Run a program on files; it writes one."""
        name = f"{program}-{len(self.activations):05d}"
        output = File(f"{name}.out", self._about(output_mb * _MB))
        run_s = round(float(runtime_s * np.exp(self.rng.normal(0.0, _SPREAD))), 3)
        command = (program, *(file.name for file in inputs), output.name)
        self.activations.append(Activation(name, program, run_s, tuple(inputs), (output,), command))
        return output

    def _about(self, size: float) -> float:
        return float(round(size * np.exp(self.rng.normal(0.0, _SPREAD))))


def _montage(builder: _WorkflowBuilder, size: int) -> None:
    """Project k images, fit their overlaps, model the background, correct it in each, add them up."""
    images = max(1, (size - 6) // 6)
    overlaps = size - 6 - 2 * images
    header = builder.given("region.hdr", 0.001)
    projected = [
        builder.add("mProject", 14, [header, builder.given(f"image-{at}.fits", 4)], 8) for at in range(images)
    ]
    fits = []
    for at in range(overlaps):
        pair = [projected[at % images], projected[(at + 1 + at // images) % images]]
        fits.append(builder.add("mDiffFit", 11, [header, *dict.fromkeys(pair)], 0.4))
    model = builder.add("mBgModel", 20, [builder.add("mConcatFit", 10, fits, 0.1)], 0.01)
    corrected = [builder.add("mBackground", 11, [model, image], 8) for image in projected]
    mosaic = builder.add("mAdd", 30, [header, builder.add("mImgtbl", 5, corrected, 0.1), *corrected], 100)
    builder.add("mJPEG", 1, [builder.add("mShrink", 7, [mosaic], 4)], 0.5)


def _cybershake(builder: _WorkflowBuilder, size: int) -> None:
    """Extract strain tensors, synthesise seismograms from them, take peaks, zip both."""
    extracts = max(1, size // 100)
    extracts += (size - 2 - extracts) % 2
    pairs = (size - 2 - extracts) // 2
    tensors = [
        builder.add("ExtractSGT", 130, [builder.given(f"sgt-{at}", 20000)], 300) for at in range(extracts)
    ]
    seismograms, peaks = [], []
    for at in range(pairs):
        rupture = builder.given(f"rupture-{at}", 4)
        seismograms.append(builder.add("SeismogramSynthesis", 40, [tensors[at % extracts], rupture], 0.02))
        peaks.append(builder.add("PeakValCalc", 1, [seismograms[-1]], 0.001))
    builder.add("ZipSeis", 2, seismograms, 5)
    builder.add("ZipPSA", 1, peaks, 0.1)


def _epigenomics(builder: _WorkflowBuilder, size: int) -> None:
    """Split lanes of reads, a chain of four steps for every part, merge by lane, then all, index, pile up."""
    steps = (("filterContams", 3, 15), ("sol2sanger", 1, 12), ("fastq2bfq", 2, 3), ("map", 200, 1))
    lanes = max(1, size // 150)
    reference = builder.given("reference.bfa", 1200)
    chain_steps = size - 3 - 2 * lanes
    splits = [
        builder.add("fastQSplit", 35, [builder.given(f"lane-{at}.sfq", 400)], 200) for at in range(lanes)
    ]
    merged: list[list[File]] = [[] for _ in splits]
    for chain in range(-(-chain_steps // 4)):
        part = splits[chain % lanes]
        for program, runtime_s, output_mb in steps[: min(4, chain_steps - 4 * chain)]:
            extra = [reference] if program == "map" else []
            part = builder.add(program, runtime_s, [part, *extra], output_mb)
        merged[chain % lanes].append(part)
    maps = [builder.add("mapMerge", 10, parts, 20) for parts in merged]
    index = builder.add("maqIndex", 40, [builder.add("mapMergeAll", 15, maps, 80)], 50)
    builder.add("pileup", 55, [index, reference], 80)


def _inspiral(builder: _WorkflowBuilder, size: int) -> None:
    """Groups: template banks, matched filters, a coincidence test, then banks and filters on what passed."""
    groups = max(1, size // 40)
    rest = size - 2 * groups
    for group in range(groups):
        share = rest // groups + (group < rest % groups)
        second = share // 4
        first, lone = divmod(share - 2 * second, 2)
        data = [builder.given(f"strain-{group}-{at}", 1) for at in range(first)]
        banks = [builder.add("TmpltBank", 18, [strain], 1) for strain in data]
        pairs = [*zip(banks, data, strict=True), *([(banks[0], data[-1])] if lone else [])]
        filtered = [builder.add("Inspiral", 460, [bank, strain], 0.3) for bank, strain in pairs]
        passed = builder.add("Thinca", 5, filtered, 0.03)
        narrowed = [builder.add("TrigBank", 5, [passed], 0.01) for _ in range(second)]
        again = [
            builder.add("Inspiral", 460, [bank, data[at % first]], 0.3) for at, bank in enumerate(narrowed)
        ]
        builder.add("Thinca", 5, again or [passed], 0.03)


def _sipht(builder: _WorkflowBuilder, size: int) -> None:
    """Find small RNAs: motif searches and term finders side by side, a prediction, comparisons."""
    blocks = max(1, size // 30)
    for block in range(blocks):
        share = size // blocks + (block < size % blocks)
        genome = builder.given(f"genome-{block}.fna", 7)
        patsers = [builder.add("Patser", 1, [genome], 0.1) for _ in range(share - 12)]
        motifs = builder.add("PatserConcate", 0.2, patsers, 1.5)
        finders = (("Transterm", 32, 0.1), ("Findterm", 600, 25), ("RNAMotif", 26, 0.1), ("Blast", 1600, 0.7))
        found = [builder.add(program, runtime_s, [genome], mb) for program, runtime_s, mb in finders]
        srna = builder.add("SRNA", 240, found, 3)
        reading = builder.add("FFNParse", 0.7, [srna], 0.1)
        programs = (("BlastSynteny", 4), ("BlastCandidate", 1), ("BlastQRNA", 400), ("BlastParalogues", 1))
        compared = [builder.add(program, runtime_s, [srna, reading], 0.5) for program, runtime_s in programs]
        builder.add("SRNAAnnotate", 1, [motifs, srna, *compared], 2)


_SHAPES: dict[str, tuple[Callable[[_WorkflowBuilder, int], None], int]] = {
    "montage": (_montage, 9),
    "cybershake": (_cybershake, 5),
    "epigenomics": (_epigenomics, 9),
    "inspiral": (_inspiral, 6),
    "sipht": (_sipht, 13),
}


def shapes() -> tuple[str, ...]:
    """The names that `generate` knows."""
    return tuple(_SHAPES)


def generate(shape: str, size: int, seed: int = 0) -> Workflow:
    """A workflow of exactly `size` activations in the shape of a known application.

    >>> workflow = generate("montage", 25, seed=7)
    >>> len(workflow), workflow.activations[0].program
    (25, 'mProject')
    """
    if shape not in _SHAPES:
        raise unknown("shape of workflow", shape, _SHAPES)
    build, least = _SHAPES[shape]
    if size < least:
        raise BadInput(f"A {shape} workflow has at least {least} activations, not {size}; ask for more.")
    builder = _WorkflowBuilder(rng_for(seed, "workflow", shape, size))
    build(builder, size)
    return Workflow(f"{shape}-{size}", tuple(builder.activations))
