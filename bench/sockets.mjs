// Clients of a relay, of Hocuspocus and of y-websocket, each speaking its wire by hand:
// nobody applies what he receives, so that the servers are measured and not Yjs.
//
//   node sockets.mjs '{"side": "crdtmem", "task": "fanout", …}'
//
// prints a JSON line when it is ready, begins when it is sent a line, and prints another
// one with what it found. `yjs` and `ws` are folders with node_modules.

import { createHash } from 'node:crypto'
import { createRequire } from 'node:module'

const options = JSON.parse(process.argv[2])
const WebSocket = createRequire(`${options.ws}/package.json`)('ws')
const require = createRequire(`${options.yjs}/package.json`)
const Y = require('yjs')
const encoding = require('lib0/encoding')
const decoding = require('lib0/decoding')

const WRITER_CLIENT = 77
const UPDATE_BYTES = 57

// As Yjs makes them: each adds one more piece of text to the end of one document.
class Updates {
  constructor () {
    this.doc = new Y.Doc()
    this.doc.clientID = WRITER_CLIENT
    this.text = this.doc.getText('content')
    this.made = 0
    this.marks = new Map() // the clock behind an update → how many there are up to it
    this.doc.on('update', update => { this.latest = update })
  }

  next (size = UPDATE_BYTES) {
    let length = Math.max(1, size - 13)
    const at = this.text.length
    // The numbers in it grow; so does what is around the text.
    const number = String(this.made).padStart(8, '0')
    this.text.insert(at, (number + ' ' + 'x'.repeat(length)).slice(0, length))
    this.made += 1
    this.marks.set(this.text.length, this.made)
    return this.latest
  }

  many (count, size) {
    return Array.from({ length: count }, () => this.next(size))
  }
}

class Client {
  constructor (number) {
    this.number = number
    this.onUpdates = () => {}
    this.delivered = 0
    this.hash = createHash('sha256')
    this.socket = this.open()
    this.socket.binaryType = 'nodebuffer'
    this.socket.on('message', data => this.receive(data))
    this.socket.on('close', (code, reason) => {
      if (!this.isDone) fail(`client ${number} was closed: ${code} ${reason}`)
    })
    this.socket.on('error', error => { if (!this.isDone) fail(String(error)) })
    this.ready = new Promise(resolve => { this.isReady = resolve })
  }

  got (count) {
    this.delivered += count
    this.onUpdates(count)
  }

  close () {
    this.isDone = true
    this.socket.terminate()
  }
}

const ENVELOPE_HEAD = made(encoder => {
  encoding.writeVarUint(encoder, 1) // version
  encoding.writeVarUint(encoder, 1) // a slot
  encoding.writeVarString(encoder, 'notes')
})
const WRITE_HEAD = made(encoder => {
  encoding.writeVarUint(encoder, 0) // flags
  encoding.writeVarUint(encoder, 0) // counter
  encoding.writeVarString(encoder, 'bench') // lane
  encoding.writeVarUint(encoder, 1_800_000_000_000) // at_ms
  encoding.writeVarString(encoder, 'append') // op
})
const HEADER_BYTES = 60
const WINDOW_RECORDS = 256
const DOC_TAG = createHash('sha256')
  .update('crdtmem/1/doc\0\x01\x05notes').digest().subarray(0, 16)

function made (write) {
  const encoder = encoding.createEncoder()
  write(encoder)
  return encoding.toUint8Array(encoder)
}

class Crdtmem extends Client {
  open () {
    this.replicaId = createHash('md5').update(`${options.seed}/${this.number}`).digest()
    this.replicaSeq = 0
    this.sentWrites = []
    this.waiting = []
    this.acked = 0
    const token = options.tokens[this.number % options.tokens.length]
    const headers = { Authorization: `Bearer ${token}` }
    const url = `ws://127.0.0.1:${options.port}/v1/sync`
    const socket = new WebSocket(
      url, ['crdtmem.v1'], { headers, perMessageDeflate: false }
    )
    socket.on('open', () => this.say(1, encoder => {
      encoding.writeVarUint(encoder, 0)
      encoding.writeUint8Array(encoder, this.replicaId)
      encoding.writeUint8Array(encoder, new Uint8Array(16))
      encoding.writeVarString(encoder, 'bench')
    }))
    const beat = setInterval(() => this.say(12, encoder => {
      encoding.writeVarUint(encoder, 0)
      encoding.writeVarUint(encoder, 0)
    }), 10_000)
    socket.on('close', () => clearInterval(beat))
    return socket
  }

  say (type, write) {
    this.socket.send(made(encoder => {
      encoding.writeVarUint(encoder, type)
      encoding.writeVarUint8Array(encoder, made(write))
    }))
  }

  receive (data) {
    const decoder = decoding.createDecoder(data)
    while (decoding.hasContent(decoder)) {
      const type = decoding.readVarUint(decoder)
      const body = decoding.createDecoder(decoding.readVarUint8Array(decoder))
      if (type === 2) {
        this.say(3, encoder => {
          encoding.writeVarString(encoder, options.room)
          encoding.writeVarUint(encoder, 0)
          encoding.writeUint8Array(encoder, new Uint8Array(16))
          encoding.writeVarUint(encoder, 0)
          encoding.writeUint8Array(encoder, new Uint8Array(32))
          encoding.writeVarUint(encoder, 0)
        })
      } else if (type === 4) {
        decoding.readVarString(body)
        this.nsNo = decoding.readVarUint(body)
        this.isReady()
      } else if (type === 9) {
        decoding.readVarUint(body)
        this.acked = decoding.readVarUint(body)
        this.sendWaiting()
      } else if (type === 10) {
        this.readRecords(body)
      } else if (type === 14 || type === 15) {
        fail(`client ${this.number} was told ${Buffer.from(data).toString('latin1')}`)
      }
    }
  }

  readRecords (body) {
    decoding.readVarUint(body) // ns_no
    const first = decoding.readVarUint(body)
    const count = decoding.readVarUint(body)
    if (this.lastSeq !== undefined && first !== this.lastSeq + 1) fail('a gap')
    this.lastSeq = first + count - 1
    let writes = 0
    for (let i = 0; i < count; i++) {
      const form = decoding.readVarUint(body)
      if (form === 0) writes += this.readRecord(decoding.readVarUint8Array(body))
      else writes += this.ownWrites(decoding.readUint8Array(body, 32))
    }
    this.got(writes)
  }

  // Our own come back by their ids, in the order that they were sent in.
  ownWrites () {
    return this.sentWrites.shift()
  }

  readRecord (record) {
    const envelope = decoding.createDecoder(record)
    envelope.pos = HEADER_BYTES + ENVELOPE_HEAD.length
    const writes = decoding.readVarUint(envelope)
    for (let i = 0; this.isChecked && i < writes; i++) {
      envelope.pos += WRITE_HEAD.length
      this.hash.update(decoding.readVarUint8Array(envelope))
    }
    return writes
  }

  record (updates) {
    const payload = made(encoder => {
      encoding.writeUint8Array(encoder, ENVELOPE_HEAD)
      encoding.writeVarUint(encoder, updates.length)
      for (const update of updates) {
        encoding.writeUint8Array(encoder, WRITE_HEAD)
        encoding.writeVarUint8Array(encoder, update)
      }
    })
    this.sentWrites.push(updates.length)
    const header = Buffer.alloc(HEADER_BYTES)
    header[0] = 1
    header[1] = 1
    DOC_TAG.copy(header, 4)
    this.replicaId.copy(header, 20)
    this.replicaSeq += 1
    header.writeBigUInt64BE(BigInt(this.replicaSeq), 36)
    header.writeUInt32BE(payload.length, 56)
    return Buffer.concat([header, payload])
  }

  send (updates) {
    for (const some of chunks(updates, options.perRecord)) {
      this.waiting.push(this.record(some))
    }
    this.sendWaiting()
  }

  // Up to the window of records that are not acknowledged.
  sendWaiting () {
    while (this.waiting.length) {
      const room = WINDOW_RECORDS - (this.replicaSeq - this.waiting.length - this.acked)
      const some = this.waiting.splice(0, Math.min(room, options.perPut))
      if (!some.length) return
      this.say(8, encoder => {
        encoding.writeVarUint(encoder, this.nsNo)
        encoding.writeVarUint(encoder, some.length)
        for (const record of some) encoding.writeVarUint8Array(encoder, record)
      })
    }
  }
}

function chunks (list, size) {
  const found = []
  for (let at = 0; at < list.length; at += size) found.push(list.slice(at, at + size))
  return found
}

// What Hocuspocus and y-websocket have in common: the sync protocol of Yjs.
class Yjs extends Client {
  say (write) {
    const encoder = encoding.createEncoder()
    this.address(encoder)
    write(encoder)
    this.socket.send(encoding.toUint8Array(encoder))
  }

  askForState () {
    this.say(encoder => {
      encoding.writeVarUint(encoder, 0)
      encoding.writeVarUint(encoder, 0)
      encoding.writeVarUint8Array(encoder, new Uint8Array([0]))
    })
  }

  receiveSync (decoder) {
    const kind = decoding.readVarUint(decoder)
    const data = decoding.readVarUint8Array(decoder)
    if (kind === 0) return
    if (kind === 1) this.isReady()
    // A server may merge updates; the clock tells how many there are.
    const { to } = Y.parseUpdateMeta(data)
    const upTo = this.updates.marks.get(to.get(WRITER_CLIENT)) ?? 0
    if (this.isChecked && kind === 2) this.texts.push(data)
    if (upTo > this.delivered) this.got(upTo - this.delivered)
  }

  send (updates) {
    for (const update of updates) {
      this.say(encoder => {
        encoding.writeVarUint(encoder, 0)
        encoding.writeVarUint(encoder, 2)
        encoding.writeVarUint8Array(encoder, update)
      })
    }
  }
}

class YWebsocket extends Yjs {
  open () {
    const socket = new WebSocket(
      `ws://127.0.0.1:${options.port}/${options.room}`, { perMessageDeflate: false }
    )
    socket.on('open', () => this.askForState())
    return socket
  }

  address () {}

  receive (data) {
    const decoder = decoding.createDecoder(data)
    if (decoding.readVarUint(decoder) === 0) this.receiveSync(decoder)
  }
}

class Hocuspocus extends Yjs {
  open () {
    const socket = new WebSocket(
      `ws://127.0.0.1:${options.port}/`, { perMessageDeflate: false }
    )
    socket.on('open', () => this.say(encoder => {
      encoding.writeVarUint(encoder, 2) // authentication
      encoding.writeVarUint(encoder, 0)
      encoding.writeVarString(encoder, 'token')
    }))
    return socket
  }

  address (encoder) {
    encoding.writeVarString(encoder, options.room)
  }

  receive (data) {
    const decoder = decoding.createDecoder(data)
    decoding.readVarString(decoder)
    const type = decoding.readVarUint(decoder)
    if (type === 2) this.askForState()
    if (type === 0 || type === 4) this.receiveSync(decoder)
  }
}

const SIDES = { crdtmem: Crdtmem, 'y-websocket': YWebsocket, hocuspocus: Hocuspocus }

function fail (message) {
  console.error(message)
  process.exit(1)
}

async function connect (count, updates, first = 0) {
  const clients = []
  for (let number = first; number < first + count; number++) {
    const client = new SIDES[options.side](number)
    client.updates = updates
    client.texts = []
    clients.push(client)
    // A few at a time: servers bound how many may be on their way.
    if (number % 8 === 7) await client.ready
  }
  await Promise.all(clients.map(client => client.ready))
  return clients
}

async function begin () {
  console.log(JSON.stringify({ isReady: true }))
  await new Promise(resolve => process.stdin.once('data', resolve))
  process.stdin.unref()
}

// Resolves when every reader has been delivered so many updates in all.
function allHave (readers, total) {
  let missing = readers.filter(reader => reader.delivered < total).length
  if (!missing) return Promise.resolve()
  return new Promise(resolve => {
    for (const reader of readers) {
      if (reader.delivered >= total) continue
      reader.onUpdates = () => {
        if (reader.delivered < total) return
        reader.onUpdates = () => {}
        missing -= 1
        if (!missing) resolve()
      }
    }
  })
}

function digestOf (updates, isMerged) {
  const hash = createHash('sha256')
  if (isMerged) {
    const doc = new Y.Doc()
    for (const update of updates) Y.applyUpdate(doc, update)
    hash.update(doc.getText('content').toString())
  } else {
    for (const update of updates) hash.update(update)
  }
  return hash.digest('hex')
}

async function fanout () {
  const updates = new Updates()
  const [writer, ...readers] = await connect(options.readers + 1, updates)
  readers[0].isChecked = true
  await begin()
  const sent = []
  const seconds = []
  for (let burst = 0; burst < options.bursts + options.warmups; burst++) {
    const some = updates.many(options.burst)
    sent.push(...some)
    const done = allHave(readers, sent.length)
    const start = performance.now()
    writer.send(some)
    await done
    if (burst >= options.warmups) seconds.push((performance.now() - start) / 1e3)
  }
  const isOurs = options.side === 'crdtmem'
  const found = isOurs
    ? readers[0].hash.digest('hex')
    : digestOf(readers[0].texts, true)
  const delivered = readers.reduce((sum, reader) => sum + reader.delivered, 0)
  return {
    seconds,
    delivered,
    expected: sent.length * readers.length,
    isEqual: found === digestOf(sent, !isOurs),
    updateBytes: sent[sent.length >> 1].length,
    clients: [writer, ...readers]
  }
}

async function latency () {
  const updates = new Updates()
  const [writer, ...readers] = await connect(options.readers + 1, updates)
  const sentAt = []
  const waits = []
  for (const reader of readers) {
    reader.onUpdates = count => {
      const now = performance.now()
      for (let i = reader.delivered - count; i < reader.delivered; i++) {
        if (i >= options.warmups) waits.push(now - sentAt[i])
      }
    }
  }
  await begin()
  const total = options.updates + options.warmups
  const start = performance.now()
  await new Promise(resolve => {
    const tick = () => {
      // As many as are due: a timer that comes late must not lower the rate.
      while (sentAt.length < total &&
        performance.now() >= start + sentAt.length * 1e3 / options.perSecond) {
        const update = updates.next()
        sentAt.push(performance.now())
        writer.send([update])
      }
      if (sentAt.length === total) resolve()
      else setTimeout(tick, 1)
    }
    tick()
  })
  while (readers.some(reader => reader.delivered < total)) {
    await new Promise(resolve => setTimeout(resolve, 5))
  }
  waits.sort((a, b) => a - b)
  const at = share => waits[Math.min(waits.length - 1, Math.floor(share * waits.length))]
  return {
    p50: at(0.5) / 1e3,
    p95: at(0.95) / 1e3,
    p99: at(0.99) / 1e3,
    delivered: waits.length,
    expected: options.updates * readers.length,
    clients: [writer, ...readers]
  }
}

// Connects and stays.
async function idle () {
  const clients = await connect(options.readers, new Updates())
  await begin()
  return { clients }
}

// Fills a room, then lets many in at once: until each has everything.
async function join () {
  const updates = new Updates()
  const [writer] = await connect(1, updates)
  const filling = updates.many(options.updates, options.size)
  let at = 0
  for (const some of chunks(filling, options.burst)) {
    writer.send(some)
    at += some.length
    // All three tell a writer of its own updates too, ours by their ids.
    await allHave([writer], at)
  }
  await begin()
  const start = performance.now()
  const joiners = await connect(options.readers, updates, 1)
  await allHave(joiners, filling.length)
  return {
    seconds: (performance.now() - start) / 1e3,
    delivered: joiners.reduce((sum, joiner) => sum + joiner.delivered, 0),
    expected: joiners.length * filling.length,
    clients: [writer, ...joiners]
  }
}

const { clients, ...result } = await { fanout, latency, idle, join }[options.task]()
for (const client of clients) client.close()
console.log(JSON.stringify(result))
process.exit(0)
