"""When and how ranks agree: deferred all-reduce, local SGD, DiLoCo; bytes on the wire."""
