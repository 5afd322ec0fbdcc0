// Hocuspocus as its documentation starts it, on a free port, which it prints.

import { pathToFileURL } from 'node:url'

const { Server } = await import(pathToFileURL(
  `${process.argv[2]}/node_modules/@hocuspocus/server/dist/hocuspocus-server.esm.js`
))
const server = new Server({ port: 0, address: '127.0.0.1', quiet: true })
await server.listen()
console.log(JSON.stringify({ port: server.address.port }))
