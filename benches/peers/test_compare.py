"""python3 -m unittest discover -s benches/peers"""
import contextlib, csv, io, os, tempfile, unittest
from compare import FIELDS, Points, named, named_points, targets, write_csv
from run import op_for, points_of, row_of


def points(ranks, size, ok=True, **us):
    """Points of one all-reduce; us: {peer: [median of each round or None]}."""
    p = Points()
    for peer, rounds in us.items():
        for i, x in enumerate(rounds):
            if x is not None:
                p.add(i, peer, "allreduce", dict(ranks=ranks, bytes=size, median_us=x, p99_us=2 * x, cpu_us=3 * x,
                                                 ok=ok, foreign_cpus=0, op=op_for(peer, "allreduce")))
    return p


def holds(p, key, rivals=("gloo", "impi")):
    return {what.split()[0] + what.split()[-1]: good for what, _, good in targets(p, key, "ringccl", rivals)}


class Ratios(unittest.TestCase):
    def test_pairs_are_of_the_same_round(self):
        """Proves that a round which one side missed pairs with nothing, and shifts no other round."""
        p = points(2, 8, ringccl=[1, 2, 4], gloo=[10, None, 80])
        self.assertEqual(p.ratios(("allreduce", 2, 8), "ringccl", "gloo"), [4 / 80, 1 / 10])

    def test_failed_rows_count_nowhere(self):
        """Proves that a row without a time (a timeout) gives neither a ratio nor a median."""
        p = points(2, 8, ringccl=[1])
        p.add(0, "gloo", "allreduce", dict(ranks=2, bytes=8, ok=False, note="timeout"))
        key = ("allreduce", 2, 8)
        self.assertEqual((p.ratios(key, "ringccl", "gloo"), p.median(key, "gloo", "median_us")), ([], None))


class Named(unittest.TestCase):
    def test_losing_shows(self):
        """Proves that one slower point, one wrong and one that no peer measured are each told, and fail the run."""
        for p in (points(2, 1 << 20, ringccl=[1.1, 1.2], gloo=[2, 2], impi=[1, 1]),
                  points(2, 1 << 20, ok=False, ringccl=[1], gloo=[2], impi=[2]),
                  points(2, 1 << 20, ringccl=[1])):
            with contextlib.redirect_stdout(io.StringIO()) as out:
                self.assertFalse(named(p, "ringccl", ["gloo", "impi"]))
            self.assertIn("at 1 of 1 points", out.getvalue())

    def test_winning_shows(self):
        """Proves that the mean is of the best peers, that our own other memory is none, and that limits are told."""
        p = points(2, 64 << 20, ringccl=[1, 1], gloo=[9, 9], impi=[4, 4], **{"ringccl-registered": [0.5, 0.7]})
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertTrue(named(p, "ringccl", ["ringccl-registered", "gloo", "impi"]))
        for text in ("ours from 64 KiB up: 4.00", "Intel MPI's time: 0.25 (at most 0.6) holds",
                     "of ringccl's time: 0.60 (at most 0.6) holds", "at 0 of 1 points"):
            self.assertIn(text, out.getvalue())

    def test_about_forty(self):
        """Proves that every operation is among the named points, and every size of the all-reduce at every rank count."""
        asked = [(op, n, b) for n in (2, 4, 8) for op, b in named_points(n)]
        self.assertEqual(len(asked), 51)
        self.assertEqual({op for op, _, _ in asked}, {"allreduce", "allgather", "reducescatter", "alltoall",
                                                      "broadcast", "sendrecv", "barrier"})


class Targets(unittest.TestCase):
    def test_small(self):
        """Proves the absolute limits of 8 B (0.35 us at 2 ranks, 8 us at 8, none at 4) and gloo's factor 4, both ways."""
        for ranks, us, want in ((2, 0.35, True), (2, 0.36, False), (8, 8.0, True), (8, 8.1, False)):
            got = holds(points(ranks, 8, ringccl=[us], gloo=[100]), ("allreduce", ranks, 8))
            self.assertEqual(got, {"atus": want, "4xMiB)": True})
        key = ("allreduce", 4, 8)
        self.assertEqual(holds(points(4, 8, ringccl=[1], gloo=[4]), key), {"4xMiB)": True})
        self.assertEqual(holds(points(4, 8, ringccl=[1], gloo=[3.9]), key), {"4xMiB)": False})

    def test_large(self):
        """Proves that from 64 KiB the best peer counts, and that above 1 MiB gloo's factor is 2."""
        for impi, best in ((1.0, True), (0.7, False)):
            p = points(2, 1 << 21, ringccl=[1.2], gloo=[2.5], impi=[impi])
            self.assertEqual(holds(p, ("allreduce", 2, 1 << 21)), {"2xMiB)": True, "attime": best})
        p = points(2, 1 << 20, ringccl=[1.2], gloo=[2.5], impi=[1])
        self.assertEqual(holds(p, ("allreduce", 2, 1 << 20)), {"4xMiB)": False, "attime": True})

    def test_nothing_measured_or_wrong(self):
        """Proves that a missing peer and wrong results never hold."""
        key = ("allreduce", 2, 1 << 16)
        self.assertEqual(holds(points(2, 1 << 16, ringccl=[1]), key), {"4xMiB)": False, "attime": False})
        wrong = holds(points(2, 1 << 16, ok=False, ringccl=[1], gloo=[9], impi=[1]), key)
        self.assertIs(wrong["rightresults"], False)


class Rows(unittest.TestCase):
    def test_row_behind_a_prefix(self):
        """Proves that rows are found behind a launcher's prefix and before its colours, and nothing else is."""
        for line in (b'{"peer": "x"}', b'[0] {"peer": "x"}', b'\x1b[32m0|\x1b[0m {"peer": "x"}\x1b[0m'):
            self.assertEqual(row_of(line), {"peer": "x"})
        for line in (b"", b"\xff[0] ready", b'{"peer": "x', b'{"rank": 1}'):
            self.assertIsNone(row_of(line))

    def test_points(self):
        """Proves sizes with a unit, and one point for a barrier."""
        self.assertEqual(points_of("allreduce,barrier", "8,2K"), [("allreduce", 8), ("allreduce", 2048), ("barrier", 0)])

    def test_csv(self):
        """Proves the record's columns, the medians over rounds, and that a second run appends without a second header."""
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "machine", "date.csv")
            for _ in range(2):
                write_csv(path, points(2, 8, ringccl=[1, 2, 9], gloo=[10]))
            with open(path) as f:
                rows = list(csv.DictReader(f))
        self.assertEqual(list(rows[0]), FIELDS)
        got = [[r[x] for x in ("peer", "op", "ranks", "bytes", "median_us", "p99_us", "cpu_us", "ok")] for r in rows]
        ours = ["ringccl", "allreduce", "2", "8", "2", "4", "6", "true"]
        self.assertEqual(got, 2 * [ours, ["gloo", "allreduce_ip", "2", "8", "10", "20", "30", "true"]])


if __name__ == "__main__":
    unittest.main()
