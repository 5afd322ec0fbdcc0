// A client of y-websocket with many documents, and another that changes a few of them.
//
//   node rejoin.mjs '{"port": …, "texts": "FILE", "yjs": "FOLDER", "ws": "FOLDER"}'
//
// fills a room for each text, says so, and then answers each line of its input with a
// JSON line: "download" joins all rooms with empty documents; "change ROOM ROOM … LINE"
// adds a line to some; "rejoin" joins all rooms with the documents as they are.

import { createRequire } from 'node:module'
import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'

const options = JSON.parse(process.argv[2])
const WebSocket = createRequire(`${options.ws}/package.json`)('ws')
const require = createRequire(`${options.yjs}/package.json`)
const Y = require('yjs')
const encoding = require('lib0/encoding')
const decoding = require('lib0/decoding')
const { readSyncMessage, writeSyncStep1 } = require('y-protocols/sync')

const SYNC = 0
const STEP_2 = 1
const AT_ONCE = 256 // rooms that are being joined; a joined one stays so
const texts = JSON.parse(readFileSync(options.texts, 'utf8'))

function fail (message) {
  console.error(message)
  process.exit(1)
}

function inSync (write) {
  const encoder = encoding.createEncoder()
  encoding.writeVarUint(encoder, SYNC)
  write(encoder)
  return encoding.toUint8Array(encoder)
}

// Resolves when each side has sent the other what it lacked.
function join (room, doc) {
  const socket = new WebSocket(
    `ws://127.0.0.1:${options.port}/${room}`, { perMessageDeflate: false }
  )
  socket.binaryType = 'nodebuffer'
  return new Promise(resolve => {
    let hasTold = false
    let hasHeard = false
    let tcp
    socket.on('error', error => fail(String(error)))
    socket.on('open', () => {
      tcp = socket._socket
      socket.send(inSync(encoder => writeSyncStep1(encoder, doc)))
    })
    socket.on('message', data => {
      const decoder = decoding.createDecoder(data)
      if (decoding.readVarUint(decoder) !== SYNC) return
      let kind
      const answer = inSync(encoder => {
        kind = readSyncMessage(decoder, encoder, doc, null)
      })
      if (answer.length > 1) {
        socket.send(answer)
        hasTold = true
      }
      hasHeard ||= kind === STEP_2
      if (hasTold && hasHeard) resolve({ socket, tcp })
    })
  })
}

async function joinAll (rooms, docs) {
  const start = performance.now()
  const joined = []
  const left = rooms.values()
  await Promise.all(Array.from({ length: AT_ONCE }, async () => {
    for (const room of left) joined.push(await join(room, docs[room]))
  }))
  const seconds = (performance.now() - start) / 1e3
  await Promise.all(joined.map(({ socket }) => new Promise(resolve => {
    socket.on('close', resolve)
    socket.close()
  })))
  const sum = what => joined.reduce((total, { tcp }) => total + tcp[what], 0)
  return { seconds, up: sum('bytesWritten'), down: sum('bytesRead') }
}

const rooms = texts.map((_, room) => room)
const written = texts.map(text => {
  const doc = new Y.Doc()
  doc.getText('content').insert(0, text)
  return doc
})
let held = []

const tasks = {
  async download () {
    held = texts.map(() => new Y.Doc())
    return joinAll(rooms, held)
  },
  async change (...words) {
    const some = words.shift().split(',').map(Number)
    for (const room of some) {
      const text = written[room].getText('content')
      text.insert(text.length, `\n${words.join(' ')}`)
    }
    return joinAll(some, written)
  },
  async rejoin () {
    const found = await joinAll(rooms, held)
    const textOf = doc => doc.getText('content').toString()
    found.differing = rooms.filter(r => textOf(held[r]) !== textOf(written[r])).length
    return found
  }
}

console.log(JSON.stringify(await joinAll(rooms, written)))
for await (const line of createInterface({ input: process.stdin })) {
  const [task, ...words] = line.split(' ')
  console.log(JSON.stringify(await tasks[task](...words)))
}
process.exit(0)
