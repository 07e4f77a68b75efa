"""Codecs: smaller, unreadable, elsewhere. Each is given to `perdure.register_codec` and named in `PERDURE_CODECS`.

A codec makes another text of the text of a value before it is stored, and the text again when it is read. They work one
after another, in the order in which they are named: compress first, then encrypt, and put elsewhere last, because
nothing can be made shorter once it cannot be read, and because only what stands outermost in a row is found by
`perdure offload sweep`.
"""

from perdure.codecs.compression import Compression
from perdure.codecs.encryption import Encryption
from perdure.codecs.offload import Offload

__all__ = ["Compression", "Encryption", "Offload"]
