cd /tmp
cat >check.py <<'PYTHON'
import asyncio, hashlib, json, multiprocessing, os, random, sqlite3, ssl, subprocess, sys
import tempfile, threading, unittest, zlib


def square(number):
    return number * number


class Check(unittest.TestCase):
    def test_json(self):
        value = {"a": [1, 2.5, None, "\u00e9"]}
        self.assertEqual(json.loads(json.dumps(value)), value)

    def test_sqlite(self):
        db = sqlite3.connect(os.path.join(tempfile.mkdtemp(), "db"))
        db.execute("create table t (n integer)")
        db.executemany("insert into t values (?)", [(n,) for n in range(1000)])
        self.assertEqual(db.execute("select sum(n) from t").fetchone(), (499500,))
        db.close()

    def test_digests_and_compression(self):
        data = random.Random(1).randbytes(1 << 20)
        self.assertEqual(zlib.decompress(zlib.compress(data)), data)
        self.assertEqual(len(hashlib.sha256(data).digest()), 32)
        self.assertTrue(ssl.OPENSSL_VERSION)

    def test_processes(self):
        self.assertEqual(subprocess.check_output(["echo", "hello"]), b"hello\n")
        with multiprocessing.Pool(2) as pool:
            self.assertEqual(pool.map(square, range(10)), [n * n for n in range(10)])

    def test_threads(self):
        done = []
        threads = [threading.Thread(target=done.append, args=(n,)) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(done), list(range(16)))

    def test_sockets_of_the_loopback(self):
        async def talk():
            async def answer(reader, writer):
                writer.write((await reader.readline()).upper())
                writer.close()

            async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
                address = server.sockets[0].getsockname()
                reader, writer = await asyncio.open_connection(*address)
                writer.write(b"ping\n")
                answered = await reader.readline()
                writer.close()
                return answered

        self.assertEqual(asyncio.run(talk()), b"PING\n")


unittest.main()
PYTHON
python3 -V
python3 check.py
