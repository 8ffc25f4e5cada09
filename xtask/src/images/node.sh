cd /tmp
node --version
cat >check.test.js <<'NODE'
const test = require('node:test');
const assert = require('node:assert');
const { execFileSync } = require('node:child_process');
const { Worker } = require('node:worker_threads');
const crypto = require('node:crypto');
const http = require('node:http');
const zlib = require('node:zlib');

test('compression', () => {
  const data = crypto.randomBytes(1 << 20);
  assert.deepStrictEqual(zlib.gunzipSync(zlib.gzipSync(data)), data);
});
test('a child', () => {
  assert.strictEqual(execFileSync('echo', ['hello']).toString(), 'hello\n');
});
test('a worker', (t, done) => {
  const code = "require('worker_threads').parentPort.postMessage(6 * 7)";
  new Worker(code, { eval: true }).once('message', (answer) => {
    assert.strictEqual(answer, 42);
    done();
  });
});
test('http on the loopback', (t, done) => {
  const server = http.createServer((_, response) => response.end('pong'));
  server.listen(0, '127.0.0.1', () => {
    http.get(server.address(), (response) => {
      response.once('data', (data) => {
        assert.strictEqual(data.toString(), 'pong');
        server.close(done);
      });
    });
  });
});
NODE
node -e 'console.log([1, 2, 3].map((n) => n * n).join())'
node --test check.test.js
