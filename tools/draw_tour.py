"""Draws docs/pictures/*.svg, the drawings of docs/tour.md: plain SVG text, the same bytes every time.

    python3 tools/draw_tour.py

Sizes and barriers in the drawings are those of the tour's two examples; where the code changes them, change them here
(the barriers' numbers stand in src/cuda/kernels/parts/hopper/named_barriers.h).
"""

from pathlib import Path

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
INK, FAINT, RULE = "#222222", "#666666", "#999999"
Q, K, V, S, O = "#cfe2f3", "#d9ead3", "#fff2cc", "#f4cccc", "#d9d2e9"
GRAY, WHITE = "#eeeeee", "#ffffff"


class Picture:
    def __init__(self, width, height):
        self.size = width, height
        self.parts = []
        self.box(0, 0, width, height, WHITE, edge=None)

    def box(self, x, y, width, height, fill, label="", edge=RULE, size=12, thick=1, dash=""):
        stroke = f' stroke="{edge}" stroke-width="{thick}"' if edge else ""
        dash = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}"{stroke}{dash}/>')
        lines = label.split("\n") if label else []
        for n, line in enumerate(lines):
            middle = y + height / 2 + size * 0.35 + (n - (len(lines) - 1) / 2) * size * 1.25
            self.text(x + width / 2, middle, line, size, "middle")

    def text(self, x, y, text, size=12, anchor="start", colour=INK, bold=False, turn=0):
        text = text.replace("&", "&amp;").replace("<", "&lt;")
        weight = ' font-weight="bold"' if bold else ""
        turned = f' transform="rotate({turn} {x} {y})"' if turn else ""
        self.parts.append(f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" fill="{colour}"'
                          f'{weight}{turned}>{text}</text>')

    def line(self, *points, colour=INK, arrow=True, dash="", thick=1.3):
        head = ' marker-end="url(#head)"' if arrow else ""
        dash = f' stroke-dasharray="{dash}"' if dash else ""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{thick}"'
                          f'{dash}{head}/>')

    def save(self, name):
        width, height = self.size
        marker = ('<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
                  f'orient="auto"><path d="M0 0 L10 5 L0 10 z" fill="{INK}"/></marker></defs>')
        PICTURES.mkdir(exist_ok=True)
        (PICTURES / name).write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'font-family="sans-serif">\n{marker}\n' + "\n".join(self.parts) + "\n</svg>\n", encoding="utf-8")
        print(PICTURES / name)


def blocks():
    """A head's scores in blocks, and in which order they are walked."""
    p = Picture(860, 350)
    side, left, top, n = 34, 70, 56, 8
    p.text(left + n * side / 2, 22, "keys, in blocks of Bc", 13, "middle")
    p.text(28, top + n * side / 2, "queries, in blocks of Br", 13, "middle", turn=-90)
    for i in range(n):
        for j in range(n):
            p.box(left + j * side, top + i * side, side, side, K if j < i else (V if i == j else GRAY))
    row = 5
    y = top + row * side
    p.box(left - 3, y - 3, n * side + 6, side + 6, "none", edge=INK, thick=2)
    p.line((left + 6, y + 11), (left + (row + 1) * side - 4, y + 11))
    p.line((left + (row + 1) * side - 4, y + 24), (left + 6, y + 24), dash="4 3")
    x = left + n * side + 40
    p.text(x, y + 8, "one unit of work: a block of queries of one head")
    p.text(x, y + 26, "(CPU: a ticket of a thread; Hopper: a tile of a thread block)", 12, colour=FAINT)
    for at, colour, label in (
            (62, K, "whole: every query of the block sees every key"),
            (92, V, "mixed: the mask's border crosses it, single scores are hidden"),
            (122, GRAY, "hidden: never visited")):
        p.box(x, at, 22, 20, colour)
        p.text(x + 32, at + 15, label)
    p.line((x, 172), (x + 40, 172))
    p.text(x + 50, 176, "the CPU walks the keys from the first block to the last")
    p.line((x, 198), (x + 40, 198), dash="4 3")
    p.text(x + 50, 202, "Hopper walks them from the last block back: the mixed one first")
    p.save("blocks.svg")


def cpu_tiles():
    """What one CPU task has in its caches."""
    p = Picture(860, 380)
    p.text(20, 24, "queries: 16 panels of 32", 13, bold=True)
    for n in range(5):
        y = 44 + n * 34
        p.box(20, y, 70, 28, Q, "Q^T" if n < 4 else "...")
        p.box(98, y, 70, 28, O, "O^T" if n < 4 else "...")
        if n < 4:
            p.box(176, y, 12, 28, WHITE, "m", size=10)
            p.box(190, y, 12, 28, WHITE, "l", size=10)
    p.text(20, 228, "Q^T and O^T of a panel:", 12)
    p.text(20, 245, "[128][32] in fp32, 16 KB each;", 12)
    p.text(20, 262, "m and l: [32]", 12)
    p.text(340, 24, "keys: one block of 128", 13, "middle", bold=True)
    p.box(250, 44, 84, 84, K, "K\n[128][d]")
    p.box(344, 44, 84, 84, V, "V\n[128][dv]")
    p.box(250, 140, 84, 60, WHITE, "next K", dash="4 3")
    p.box(344, 140, 84, 60, WHITE, "next V", dash="4 3")
    p.box(250, 140, 84, 22, K)
    p.box(344, 140, 84, 22, V)
    p.text(250, 228, "The next block is copied in slices,", 12)
    p.text(250, 245, "one after each panel.", 12)
    left, top = 530, 54
    p.text(left + 128, 24, "S^T = K Q^T of a panel, then P^T", 13, "middle", bold=True)
    p.box(left, top, 256, 150, S)
    for x in range(1, 16):
        p.line((left + x * 16, top), (left + x * 16, top + 150), colour="#e8b4b4", arrow=False, thick=0.6)
    p.box(left, top + 30, 256, 24, "none", edge=INK, thick=2)
    p.text(left + 128, top + 46, "8 keys x 2 vectors, in registers", 11, "middle")
    p.text(left + 128, top - 8, "32 queries, one a lane (AVX-512: 2 vectors of 16)", 11, "middle", FAINT)
    p.text(left - 10, top + 75, "128 keys", 11, "middle", FAINT, turn=-90)
    p.line((left + 280, top + 6), (left + 280, top + 144))
    p.text(left + 296, top + 75, "max, sum", 11, "middle", turn=-90)
    p.text(left, 228, "A query's scores are one lane: its maximum", 12)
    p.text(left, 245, "and its sum need no operation across lanes.", 12)
    p.text(20, 296, "The steps of a panel. Both products are product.h: scalars of K or V are broadcast "
           "against vectors of queries.", 12)
    for n, (label, fill, what) in enumerate((
            ("S^T += K[j][c] * Q^T[c]", S, "reads K along its rows"),
            ("P = e^(S - m), l, m", S, "no product: softmax of the panel"),
            ("O^T += V[j][c] * P^T[j]", O, "reads V down its columns"))):
        p.box(20 + n * 280, 308, 220, 36, fill, label)
        p.text(130 + n * 280, 364, what, 12, "middle", FAINT)
        if n < 2:
            p.line((244 + n * 280, 326), (296 + n * 280, 326))
    p.save("cpu-tiles.svg")


def cpu_step():
    """One block of keys on one thread."""
    p = Picture(860, 250)
    left, width = 130, 700
    p.text(10, 66, "the thread", 13, bold=True)
    p.text(10, 133, "its caches", 13, bold=True)
    x = left
    for n, name in enumerate(("panel 0", "panel 1", "panel 2")):
        start = x
        for label, span, fill in (("S", 64, S), ("softmax", 70, S), ("O", 64, O)):
            p.box(x, 46, span, 34, fill, label)
            x += span
        p.box(x, 46, 20, 34, K)
        p.text((start + x) / 2, 36, name, 12, "middle")
        p.line((start, 128), (start + 64, 128), arrow=False, thick=10, colour="#b6d7a8")
        p.line((x + 10, 122), (x + 10, 84), dash="3 3")
        x += 20
    p.text(x + 12, 68, "...", 14)
    p.text(left, 154, "lines of the next slice of K and V are fetched between the register tiles of S", 12)
    p.text(left, 171, "(and the next rows of Q, the rows of O: look_ahead in forward.h)", 12, colour=FAINT)
    p.box(left, 196, 20, 20, K)
    p.text(left + 30, 211, "the slice that has come near is copied to the next block's buffer (KeyBlocks::advance)", 12)
    p.text(left, 238, "A panel starts in its first block of keys (Q^T is made, O = 0) and finishes in its last "
           "(out and lse are stored).", 12, colour=FAINT)
    p.save("cpu-step.svg")


def hopper_memory():
    """The shared memory of one thread block of the example, and how a tile lies in it."""
    p = Picture(860, 420)
    p.text(20, 24, "Shared memory of one thread block: 225.4 of 227 KB", 13, bold=True)
    x, y, scale = 20, 38, 116
    for label, fill in (("Q, stage 0", Q), ("Q, stage 1", Q), ("K, stage 0", K), ("K, stage 1", K), ("V, stage 0", V),
                        ("V, stage 1", V), ("O", O)):
        p.box(x, y, scale, 44, fill, f"{label}\n32 KB")
        x += scale
    p.box(x, y, 10, 44, INK)
    p.line((x + 5, 104), (x + 5, 86))
    p.text(x + 10, 118, "barriers of the rings, and what the producer says of each tile", 12, "end")
    p.text(20, 156, "A tile of 128 x 128", 13, bold=True)
    for c in range(2):
        for r in range(2):
            p.box(20 + c * 124, 170 + r * 80, 116, 74, Q,
                  f"rows {r * 64} to {r * 64 + 63}\ncolumns {c * 64} to {c * 64 + 63}", size=11)
    for n, label in enumerate(("first 8 KB", "second", "third", "fourth")):
        p.text(78 + n // 2 * 124, 184 + n % 2 * 80, label, 10, "middle", FAINT)
    for n, line in enumerate(("Two chunks of 64 columns: a row of", "a chunk is 128 bytes. Consumer 0 has",
                              "rows 0 to 63 of Q and O, consumer 1", "the others; both read all of K and V.")):
        p.text(20, 352 + n * 17, line, 12)
    p.text(318, 156, "Eight rows of a chunk", 13, bold=True)
    for r in range(8):
        for c in range(8):
            p.box(318 + c * 27, 170 + r * 19, 27, 19, V if c ^ r == 2 else WHITE, str(c ^ r), size=11)
    for n, line in enumerate(("TMA's 128-byte swizzle: piece p of 16", "bytes of row r lies at place p ^ r % 8.",
                              "Piece 2 of eight rows, for example, lies", "in eight groups of banks: no conflict.")):
        p.text(318, 352 + n * 17, line, 12)
    p.text(600, 156, "A consumer's 232 registers a lane", 13, bold=True)
    at = 170
    for label, count, fill in (("S: 64 x 128 a warpgroup, fp32", 64, S), ("O: 64 x 128 a warpgroup, fp32", 64, O),
                               ("P of the block before, 16 bits", 32, V), ("P of this block, 16 bits", 32, V),
                               ("m, l, addresses, the rest", 40, WHITE)):
        height = count * 0.68
        p.box(610, at, 200, height, fill, label, size=11)
        p.text(818, at + height / 2 + 4, str(count), 11)
        at += height
    p.text(610, 352, "The producer's warpgroup keeps 40.", 12)
    p.save("hopper-memory.svg")


def hopper_waits():
    """Who waits for whom in a thread block of Hopper's forward kernel."""
    p = Picture(860, 450)
    p.line((20, 20), (60, 20))
    p.text(68, 24, "data; whoever reads it waits until it has come (\"full\")", 12)
    p.line((450, 20), (490, 20), dash="5 4")
    p.text(498, 24, "a place given back; the writer waits for it (\"empty\")", 12)
    p.box(20, 170, 130, 90, GRAY, "producer\none thread of\nwarpgroup 2")
    p.box(20, 330, 130, 60, GRAY, "TMA\n(hardware)")
    p.line((85, 262), (85, 328))
    p.text(92, 300, "starts copies", 12)
    for y, label, fill in ((70, "ring of Q\n2 stages", Q), (170, "ring of K\n2 stages", K),
                           (270, "ring of V\n2 stages", V)):
        p.box(330, y, 130, 60, fill, label)
        p.line((152, 360), (230, 360), (230, y + 44), (328, y + 44))
        p.line((328, y + 16), (152, 150 + y // 3), dash="5 4")
        p.line((462, y + 22), (648, 70 + y * 0.28))
        p.line((462, y + 38), (648, 240 + y * 0.28))
        p.line((648, 78 + y * 0.28), (462, y + 30), dash="5 4", colour=FAINT, thick=0.9)
        p.line((648, 248 + y * 0.28), (462, y + 46), dash="5 4", colour=FAINT, thick=0.9)
    p.box(330, 372, 130, 46, O, "O: a half for\neach consumer")
    for n, y in enumerate((80, 250)):
        p.box(650, y, 170, 90, S, f"consumer {n}\nwarpgroup {n}: 64 queries\n4 warps of 16 rows")
    p.line((710, 172), (710, 248))
    p.line((760, 248), (760, 172))
    p.text(703, 214, "turn 2", 12, "end")
    p.text(768, 204, "turn 1", 12)
    p.text(768, 219, "(named", 12)
    p.text(768, 234, "barriers)", 12)
    p.line((690, 342), (690, 395), (462, 395))
    p.line((822, 125), (845, 125), (845, 405), (462, 405))
    p.text(480, 424, "O / l by stmatrix; named barriers 8 and 9 hold together a", 12)
    p.text(480, 440, "consumer's four warps", 12)
    p.line((328, 400), (180, 400), (152, 385))
    p.text(160, 424, "stored while the next", 12)
    p.text(160, 440, "tile is worked on", 12)
    p.save("hopper-waits.svg")


def hopper_step():
    """One step of both consumers, in time."""
    p = Picture(860, 350)
    left, unit, end = 120, 0.2, 3600

    def at(cycles):
        return left + cycles * unit

    def span(first, last, y, fill, label, size=11):
        first, last = max(first, 0), min(last, end)
        if first < last:
            p.box(at(first), y, (last - first) * unit, 34, fill, label if (last - first) * unit > 40 else "", size=size)

    for y, name in ((52, "TMA"), (112, "tensor cores"), (182, "consumer 0"), (262, "consumer 1")):
        p.text(10, y, name, 13, bold=True)
    for consumer, y in enumerate((160, 240)):
        for step, name in ((-1, "n-1"), (0, "n"), (1, "n+1")):
            start = step * 2400 + consumer * 1200
            before = {"n-1": "n-2", "n": "n-1", "n+1": "n"}[name]
            span(start, start + 530, 90, S, f"S({name}) of {consumer}")
            span(start + 530, start + 1060, 90, O, f"P V({before}) of {consumer}")
            span(start + 530, start + 1780, y, V, f"mask, softmax: P({name})")
            span(start + 1780, start + 1970, y, O, "O")
            if 0 <= start <= end:
                p.line((at(start), y - 6), (at(start), y + 40), arrow=False, thick=2.4)
    p.line((at(530), 126), (at(530), 158), dash="3 3")
    p.line((at(1060), 126), (at(1780), 158), dash="3 3", colour=FAINT)
    p.line((at(1730), 126), (at(1730), 238), dash="3 3")
    p.line((at(2260), 126), (at(2980), 238), dash="3 3", colour=FAINT)
    p.line((at(530), 88), (at(1726), 66), dash="3 3", colour=FAINT)
    p.line((at(1730), 88), (at(1730), 66), dash="3 3", colour=FAINT)
    p.box(at(1730), 30, 330 * unit, 34, K, "K(n+2)", size=11)
    p.box(at(2980), 30, 330 * unit, 34, V, "V(n+1)", size=11)
    p.text(at(1700), 50, "both consumers have read K(n):", 11, "end")
    p.text(at(2950), 50, "and V(n-1):", 11, "end")
    p.line((at(0), 298), (at(end), 298))
    for cycles, label in ((0, "0"), (1200, "1200"), (2400, "about 2400 cycles: a step")):
        p.text(at(cycles), 314, label, 11, "middle")
    p.line((left, 330), (left, 344), arrow=False, thick=2.4)
    p.text(left + 8, 342, "has the turn: starts S and P V, passes the turn on", 11)
    p.box(left + 330, 330, 22, 14, O)
    p.text(left + 358, 342, "waits for P V, gives V's place back, rescales O where m moved", 11)
    p.save("hopper-step.svg")


if __name__ == "__main__":
    for draw in (blocks, cpu_tiles, cpu_step, hopper_memory, hopper_waits, hopper_step):
        draw()
