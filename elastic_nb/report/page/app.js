'use strict'
const page = document.getElementById('main')
const NS = 'http://www.w3.org/2000/svg'
const SIGNS = {
  running: '\u25b6', finished: '\u2713', failed: '\u2717', stopped: '\u25a0', unreadable: '?'}

// An element: its attributes as text, its children as text nodes. Nothing here is ever parsed as HTML.
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === 'on') node.addEventListener('click', value)
    else if (value !== null && value !== false) node.setAttribute(name, String(value))
  }
  node.append(...children.flat().filter(c => c !== null).map(c => c instanceof Node ? c : plain(c)))
  return node
}
const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children)
const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(NS, tag), attributes, children)

// Control characters, and those that turn the direction of writing around, are shown as what they are.
function plain(text) {
  return String(text).slice(0, 500).replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2066-\u2069]/g,
    c => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'))
}

// A part of the page is made again only if what it shows has changed: no button is swapped under a finger.
const parts = {}
function put(name, key, make) {
  const now = JSON.stringify(key)
  if (parts[name]?.key === now && parts[name].box.isConnected) return
  if (!parts[name]?.box.isConnected) {
    parts[name] = {box: el('div', {id: `part-${name}`})}
    page.append(parts[name].box)
  }
  parts[name].key = now
  parts[name].box.replaceChildren(...[make()].flat().filter(node => node))
}
function alone(node) {
  page.replaceChildren(node)
}
const known = x => x !== null && x !== undefined
const number = (x, digits = 4) => known(x) ? Number(x).toPrecision(digits) : '-'
function seconds(s) {
  if (!known(s)) return '-'
  if (s < 1) return `${Math.round(s * 1000)} ms`
  if (s < 120) return `${s.toFixed(1)} s`
  return s < 7200 ? `${Math.round(s / 60)} min` : `${(s / 3600).toFixed(1)} h`
}
async function api(path, options = {}) {
  const answer = await fetch(path, {...options, signal: AbortSignal.timeout(15000)})
  if (answer.status === 401) location.href = '/login'
  return answer.json()
}
const state = s => el('span', {class: `state ${s in SIGNS ? s : ''}`}, `${SIGNS[s] || ''} ${s}`)
const tile = (name, value, kind = '') => el('div', {class: kind}, el('b', {}, value), el('span', {}, name))
function table(head, rows, spare = []) {   // spare: columns that a phone has no room for
  const kind = (tag, n) => ({scope: tag === 'th' && 'col', class: spare.includes(head[n]) && 'wide'})
  const line = (tag, cells) => el('tr', {}, cells.map((c, n) => el(tag, kind(tag, n), c)))
  return el('div', {class: 'card scroll'},
            el('table', {}, el('thead', {}, line('th', head)), el('tbody', {}, rows.map(r => line('td', r)))))
}

async function list() {
  const told = await api('/api/runs')
  const rows = told.runs.map(r => [
    [el('a', {href: `/run/${r.id}`}, r.run), r.starts > 1 ? ` ${r.starts} starts` : null],
    r.folder || '', state(r.state),
    known(r.steps) ? `${r.step ?? 0} of ${r.steps}` : `${r.step ?? '-'}`,
    number(r.loss), `${r.workers ?? '-'}`, `${r.recoveries ?? '-'}`, seconds(r.rto_s)])
  const head = ['run', 'folder', 'state', 'step', 'loss', 'workers alive', 'workers lost', 'longest recovery']
  document.getElementById('lost')?.remove()
  put('runs', told.runs, () => [el('h1', {}, 'Runs'),
    rows.length ? table(head, rows, ['folder', 'loss', 'workers alive', 'longest recovery'])
                : el('p', {class: 'card'}, 'There is no run here yet. It appears when one has begun.')])
  put('queues', told.queues, () => told.queues.flatMap(q => [el('h2', {}, `Queue ${q.file}`),
    table(['job', 'plan', 'state', 'tasks done', 'starts'],
          q.jobs.map(j => [`${j.job}`, j.plan, state(j.state), `${j.done}`, `${j.starts}`]))]))
  setTimeout(() => list().catch(lost), document.hidden ? 10000 : 2000)
}
function lost() {
  const said = 'The server does not answer. Trying again.'
  if (!document.getElementById('lost'))
    page.prepend(el('p', {id: 'lost', class: 'card open', role: 'alert'}, said))
  setTimeout(() => (location.pathname === '/' ? list() : refresh()).catch(lost), 2000)
}

const HIGH = 30, LEFT = 74, AXIS = 22
function across(p, width) {
  const per = (width - LEFT - 8) / (p.right - p.left)
  return t => LEFT + (Math.min(Math.max(t, p.left), p.right) - p.left) * per
}
function drawLanes(p, width) {
  const slots = [...new Set(p.lanes.map(l => l.slot))], shown = slots.slice(0, 40)
  const height = shown.length * HIGH + 4 + (slots.length > 40 ? 18 : 0)
  const x = across(p, width)
  const parts = []
  parts.push(...breaks(p, x, height, true))
  let free = -Infinity   // where the next time has room
  for (const g of p.gaps.filter(g => g.from <= p.right)) {
    const [a, b] = [x(g.from), Math.max(x(g.to), x(g.from) + 1.5)]
    const text = g.healed ? seconds(g.to - g.from) : 'not healed yet'
    const beside = b > width - 110 ? {x: a - 3, 'text-anchor': 'end'} : {x: b + 3}
    parts.push(svg('rect', {class: 'gap', x: a, y: 0, width: b - a, height}))
    if (g.healed && a < free) continue   // it stands in the list below
    parts.push(svg('text', {class: 'fault', y: 10, ...beside}, text))
    free = b + 50
  }
  for (const lane of p.lanes.filter(l => shown.includes(l.slot)))
    parts.push(...drawLane(lane, shown.indexOf(lane.slot), x, p))
  shown.forEach((slot, n) => parts.push(svg('text', {x: 4, y: n * HIGH + 23}, `worker ${slot.slice(0, 4)}`)))
  if (slots.length > shown.length)
    parts.push(svg('text', {class: 'muted', x: 4, y: height - 4}, `${slots.length - shown.length} more`))
  parts.push(...axis(p, x, width, height - 4, false))
  const hatch = svg('pattern', {id: 'hatch', width: 6, height: 6, patternUnits: 'userSpaceOnUse'},
                    svg('path', {class: 'hatch', d: 'M0 6L6 0'}))
  const told = `Lanes of ${slots.length} workers; ${p.gaps.length} interruptions.`
  return svg('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': told, id: 'lanes'},
             svg('defs', {}, hatch), parts)
}

function breaks(p, x, height, words) {   // no process of the run lived
  return p.pauses.map(b => {
    const [from, to] = [x(b.from), Math.max(x(b.to), x(b.from) + 2)]
    const said = `stopped for ${seconds(b.seconds)}`
    const [middle, half] = [(from + to) / 2 + 4, height / 2]
    const place = {transform: `rotate(-90 ${middle} ${half})`, x: middle, y: half, 'text-anchor': 'middle'}
    return [svg('rect', {class: 'pause', x: from, y: 0, width: to - from, height},
                svg('title', {}, `${said}, then ${b.start} went on`)),
            words && to - from > 11 ? svg('text', place, said) : null]
  }).flat().filter(known)
}
function drawLane(lane, n, x, p) {
  const y = n * HIGH + 12, parts = []
  for (const [what, from, to] of lane.parts) {
    const [a, b] = [x(from), x(to)], kind = what > 0 ? 'bar' : what < 0 ? 'stopped' : 'start'
    const said = what > 0 ? `at work in generation ${what}` : what < 0 ? 'stopped (SIGSTOP)' : 'starting'
    const place = {x: a, y, width: Math.max(b - a, .8), height: 16, rx: 2}
    parts.push(svg('rect', {class: kind, ...place, 'data-worker': lane.worker},
                   svg('title', {}, `${lane.worker} ${said}, ${seconds(to - from)}`)))
    const size = p.sizes[what], long = `${size} worker${size === 1 ? '' : 's'}`
    if (what > 0 && known(size) && b - a > 14)
      parts.push(svg('text', {class: 'on', x: a + 5, y: y + 12}, b - a > 70 ? long : size))
  }
  const end = lane.parts.length ? lane.parts.at(-1)[2] : null
  if (lane.end && lane.end !== 'finished' && end !== null && end <= p.right) {
    const a = x(end)
    const cross = `M${a - 5} ${y + 3}l10 10m0 -10l-10 10`
    parts.push(svg('path', {class: 'cross', d: cross, 'data-dead': lane.worker},
                   svg('title', {}, `${lane.worker}: ${lane.end}`)))
  }
  return parts
}

function ticks(from, to, most) {
  const rough = (to - from) / most, power = 10 ** Math.floor(Math.log10(rough))
  const step = [1, 2, 5, 10].map(m => m * power).find(s => s >= rough) || 10 * power
  const found = []
  for (let t = Math.ceil(from / step) * step; t <= to && found.length < 50; t += step)
    found.push(Number(t.toPrecision(12)))
  return found
}
function axis(p, x, width, y, text = true) {
  const marks = ticks(p.left, p.right, width / 90).map(t =>
    [svg('path', {class: 'axis', d: `M${x(t)} 0V${y + 4}`}),
     text ? svg('text', {class: 'muted', x: x(t), y: y + 17, 'text-anchor': 'middle'}, `${t} s`) : null])
  return marks.flat().filter(known)
}
function drawLoss(p, width) {
  const height = 170, bottom = height - AXIS, real = p.loss.filter(known)
  if (!real.length) return el('p', {class: 'muted'}, 'No step has been committed in this window.')
  let [low, high] = [Math.min(...real), Math.max(...real)]
  if (high - low < 1e-9) [low, high] = [low - .5, high + .5]
  const x = across(p, width)
  const y = v => bottom - 6 - (v - low) / (high - low) * (bottom - 22)
  let path = '', pen = 'M'
  p.loss.forEach((v, n) => {
    if (!known(v)) { pen = 'M'; return }
    path += `${pen}${x(p.t[n]).toFixed(1)} ${y(v).toFixed(1)}`
    pen = 'L'
  })
  const wide = g => Math.max(x(g.to) - x(g.from), 1.5)
  const bands = p.gaps.map(g =>
    svg('rect', {class: 'gap', x: x(g.from), y: 0, width: wide(g), height: bottom}))
  const saves = p.saves.map(t => svg('path', {class: 'save', d: `M${x(t)} ${bottom}l-3 6h6z`},
                                     svg('title', {}, 'a checkpoint')))
  const scale = [high, low].map(v => svg('text', {class: 'muted', x: 4, y: y(v) + 4}, number(v)))
  scale.push(svg('text', {x: 4, y: (bottom + 14) / 2}, 'loss'))
  const read = svg('text', {x: LEFT + 4, y: 12, id: 'read'})
  const made = svg('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', id: 'loss',
                           'aria-label': `Loss from ${number(real[0])} to ${number(real.at(-1))}.`},
                   axis(p, x, width, bottom), breaks(p, x, bottom, false), bands,
                   svg('path', {class: 'loss', d: path}), saves, scale, read)
  made.addEventListener('pointermove', e => {
    const box = made.getBoundingClientRect(), at = (e.clientX - box.left) / box.width * width
    let best = 0
    p.t.forEach((t, n) => { if (Math.abs(x(t) - at) < Math.abs(x(p.t[best]) - at)) best = n })
    const many = p.sizes[p.gen[best]] ?? '?'
    read.textContent = `step ${p.step[best]}: loss ${number(p.loss[best], 5)}, ${many} workers`
  })
  return made
}

const id = location.pathname.split('/')[2]
let shown = null, span = 30, log = [], source = null, last = 0
let due = false, busy = false, since = 0, alarm = ''
const WINDOWS = [[30, 'last 30 s'], [300, 'last 5 min'], [null, 'whole run']]

async function refresh() {
  if (busy) { due = true; return }
  busy = true
  try {
    const width = Math.max(280, Math.min(page.clientWidth - 30, 1100))
    const end = shown?.picture.end ?? null
    const from = span !== null && end !== null ? `&from=${Math.max(0, end - span + 1)}` : ''
    const got = await api(`/api/runs/${id}?width=${Math.round(width)}${from}`)
    if (!got.picture) { alone(el('p', {class: 'card'}, got.error, ' ', home())); return }
    const first = shown === null
    shown = got
    since = performance.now()
    if (first) {
      if (got.state !== 'running') span = null
      listen(got.last)
      if (span !== null && got.picture.end > span) due = true
    }
    draw(width)
  } finally { busy = false }
  if (due) { due = false; setTimeout(() => refresh().catch(lost), 250) }
}
const home = () => el('a', {href: '/'}, '\u2190 all runs')

// The rows of the run, as they are written. A hidden tab hangs up, and asks later for what it has missed.
function listen(after) {
  last = Math.max(last, after)
  source = new EventSource(`/api/runs/${id}/events?after=${last}`)
  source.onmessage = message => {
    const row = JSON.parse(message.data)
    last = row.id
    if (!['commit', 'contribute'].includes(row.kind)) log = [row, ...log].slice(0, 50)
    if (busy) due = true
    else if (!due) { due = true; setTimeout(() => { due = false; refresh().catch(lost) }, 250) }
  }
}
document.addEventListener('visibilitychange', () => {
  if (!source) return
  source.close()
  if (!document.hidden) { listen(last); refresh().catch(lost) }
})
async function act(what, worker) {
  const body = JSON.stringify(worker === undefined ? {do: what} : {do: what, worker})
  const headers = {'content-type': 'application/json'}
  const got = await api(`/api/runs/${id}/do`, {method: 'POST', headers, body})
    .catch(e => ({error: String(e)}))
  alarm = got.error ? `${what}: ${got.error}` : ''
  refresh().catch(lost)
}

function recovery(r) {
  const where = known(r.step) ? ` at step ${r.step}` : ''
  const start = shown.starts.length > 1 ? `, in ${r.start}` : ''
  const world = known(r.world_after) ? ` World: ${r.world_before} to ${r.world_after}.` : ''
  const noticed = known(r.detect_s) ? ` Noticed after ${seconds(r.detect_s)}.` : ''
  const back = known(r.rto_s) ? ['Time without progress: ', el('b', {class: 'rto'}, seconds(r.rto_s)), '. ']
                              : [el('b', {class: 'open'}, 'No step has been committed since. ')]
  return el('li', {}, 'Worker ', el('b', {}, r.worker ?? '?'),
            ` was lost${where}${start} (${r.cause ?? 'unknown'}).${noticed} `, back,
            `Steps done again: ${r.redone_steps ?? '-'}.${world}`)
}
function controls(s) {
  if (!s.may.length) return null
  const alive = s.workers.filter(w => s.alive.includes(w.name))
  const rows = alive.map(w => el('div', {class: 'row', role: 'group'},
    el('b', {}, `worker ${w.name}`), el('span', {class: 'muted'}, `pid ${w.pid ?? '?'}`),
    el('button', {class: 'kill', on: () => act('kill', w.name), 'data-kill': w.name}, '\u2715 kill'),
    el('button', {on: () => act('hang', w.name), 'data-hang': w.name}, '\u2016 hang')))
  const what = 'kill a worker (SIGKILL), or hang it (SIGSTOP), and watch.'
  return el('section', {class: 'card', id: 'break'}, el('b', {}, 'Break it: '), what, rows,
            el('button', {on: () => act('add'), 'data-add': ''}, '+ add a worker'))
}
function tiles(s) {
  const open = s.picture.gaps.find(g => !g.healed), times = s.recoveries.map(r => r.rto_s).filter(known)
  const heal = open ? tile('without progress, not healed yet', seconds(open.to - open.from), 'open')
                    : tile('last recovery took (RTO)', times.length ? seconds(times.at(-1)) : '-')
  const alive = s.alive.length
  heal.id = 'rto'
  const step = known(s.steps) ? `${s.step ?? 0} of ${s.steps}` : `${s.step ?? '-'}`
  return el('div', {class: 'tiles'}, tile('step', step), tile('loss', number(s.loss)),
            tile('learning rate', number(s.lr, 3)), tile('workers alive', alive),
            tile('workers lost', s.recoveries.length), heal)
}

function draw(width) {
  const s = shown, p = s.picture
  document.getElementById('lost')?.remove()
  document.title = `${plain(s.run)}: ${s.state}`
  put('head', [s.run, s.state, s.folder], () => [
    el('div', {class: 'row'}, home(), el('span', {class: 'push'}), state(s.state)),
    el('h1', {}, s.run, el('span', {class: 'muted'}, ` in ${s.folder}`))])
  put('alarm', alarm, () => alarm && el('p', {class: 'card open', role: 'alert'}, alarm))
  put('error', s.error, () => s.error && el('p', {class: 'card open'}, s.error))
  put('tiles', [s.step, s.loss, s.lr, s.workers, s.recoveries, p.gaps], () => tiles(s))
  put('controls', [s.may, s.alive], () => controls(s))
  const choose = w => () => { span = w; refresh().catch(lost) }
  put('windows', span, () => el('div', {class: 'row'},
    el('h2', {}, 'Who works, and the loss'), el('span', {class: 'push'}),
    WINDOWS.map(([w, name]) => el('button', {'aria-pressed': w === span, on: choose(w)}, name))))
  put('picture', [p, width], () => el('div', {class: 'card'},
    drawLanes(p, width), drawLoss(p, width), el('p', {class: 'muted'}, LEGEND)))
  const losses = s.recoveries.slice(-50).reverse(), saves = (s.checkpoints || []).slice(-12).reverse()
  put('lost', losses, () => [el('h2', {}, 'What was lost, and what it cost'),
    losses.length ? el('ol', {class: 'card', id: 'recoveries', reversed: ''}, losses.map(recovery))
                  : el('p', {class: 'card'}, 'Nothing so far.')])
  put('starts', s.starts.map(t => [t.name, t.state, t.lost_steps]), () => s.starts.length < 2 ? [] : [
    el('h2', {}, 'Its starts'),
    table(['start', 'began, UTC', 'from step', 'to step', 'how it ended', 'steps lost with it'],
          s.starts.map(t => [t.name, (t.started ?? '-').slice(0, 19).replace('T', ' '),
                             `${t.resumed_from ?? 0}`, t.state === 'running' ? '' : `${t.step}`,
                             t.error ?? t.state, `${t.lost_steps}`]),
          ['began, UTC'])])
  put('notes', s.notes, () => s.notes.length ? [el('h2', {}, 'Notes'),
    el('ul', {class: 'card'}, s.notes.map(n => el('li', {}, n)))] : [])
  put('workers', s.workers, () => [el('h2', {}, 'Workers'),
    table(['name', 'pid', 'state'], s.workers.slice(-100).map(w => [w.name, `${w.pid ?? '-'}`, w.state]))])
  put('saves', saves, () => [el('h2', {}, 'Checkpoints'), checkpoints(saves)])
  const rows = log.map(e => [e.id, e.kind, e.worker ?? '', e.step ?? ''])
  put('log', rows, () => [el('h2', {}, 'What happened since this page was opened'),
    log.length ? table(['row', 'what', 'worker', 'step'], rows) : el('p', {class: 'card'}, 'Nothing yet.')])
  const hash = () => el('p', {class: 'muted'}, 'sha256 of the final state: ', el('code', {}, s.sha256))
  put('sha', s.sha256, () => s.sha256 && hash())
}
setInterval(() => {   // the counter runs between two answers, too
  const open = shown?.picture.gaps.find(g => !g.healed), text = document.querySelector('#rto b')
  if (open && text) text.textContent = seconds(open.to - open.from + (performance.now() - since) / 1000)
}, 100)
const LEGEND = 'A bar: a worker at work, and how many share the batch. Dashed: it starts. ' +
  'Hatched: it is stopped. A cross: it was lost. A band over all lanes: no step was committed. ' +
  'A grey one: no process lived; long breaks are drawn shorter. ' +
  'Triangles: checkpoints. Time in seconds since the start.'

function checkpoints(rows) {
  if (!rows.length) return el('p', {class: 'card'}, 'None so far.')
  const head = [...new Set(rows.flatMap(Object.keys))].slice(0, 6)
  function one(v) {
    if (typeof v === 'number' && !Number.isInteger(v)) return number(v)
    return typeof v === 'object' ? JSON.stringify(v) : v
  }
  return table(head, rows.map(r => head.map(k => one(r[k] ?? '-'))))
}
if (location.pathname === '/') list().catch(lost)
else {
  refresh().catch(lost)
  setInterval(() => { if (!document.hidden && shown?.state === 'running') refresh().catch(lost) }, 1000)
}
