"""Frames as the text that can-train-and-test has them in."""

from graphmill.tasks.intrusion.data.frames import EXTENDED, Frames


def csv_of(frames: Frames) -> str:
    """A header, then a line for each frame."""
    rows = ["timestamp,arbitration_id,data_field,attack"]
    for row in range(len(frames)):
        payload = frames.payload[row, : frames.length[row]].tobytes().hex().upper()
        rows.append(f"{frames.time[row]:.6f},{frames.id[row] & ~EXTENDED:03X},{payload},{frames.label[row]}")
    return "\n".join(rows) + "\n"
