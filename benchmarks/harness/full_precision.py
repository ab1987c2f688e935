"""A model's file with its weights as float32, so that rounding is not what a benchmark measures."""

from __future__ import annotations

import os
from pathlib import Path

import gguf
import numpy as np
from filelock import FileLock
from gguf import GGUFReader, GGUFValueType, GGUFWriter, ReaderField

# The writer makes these itself.
_OWN_KEYS = ("GGUF.", "general.architecture", "general.file_type", "general.quantization_version")


def float32_copy(path: Path, folder: Path) -> Path:
    """The copy of a GGUF file in `folder`, made once; four bytes for each weight."""
    copy = folder / f"{path.stem}-f32.gguf"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(copy.with_suffix(".lock")):
        if not copy.exists() or copy.stat().st_mtime < path.stat().st_mtime:
            part = copy.with_suffix(".part")
            _write(path, part)
            os.replace(part, copy)
    return copy


def _write(path: Path, copy: Path) -> None:
    reader = GGUFReader(path)
    architecture = reader.fields["general.architecture"].contents()
    writer = GGUFWriter(copy, architecture, use_temp_file=False)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for name, field in reader.fields.items():
        if not name.startswith(_OWN_KEYS):
            _copy_field(writer, name, field)
    for tensor in reader.tensors:
        weights = gguf.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, weights.astype(np.float32, copy=False))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _copy_field(writer: GGUFWriter, name: str, field: ReaderField) -> None:
    kind, *inner = field.types
    sub_type = inner[-1] if kind is GGUFValueType.ARRAY else None
    writer.add_key_value(name, field.contents(), kind, sub_type)
