// Numbers, sizes and times for people. What is told as text is a number too large for a browser: it stays as it is.

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];
const MOST_DEPTH = 40;
const MOST_TIME_MS = 8.64e15;

export function count(number) {
  return typeof number === "number" ? whole.format(number) : String(number ?? "");
}

export function size(bytes) {
  let at = 0;
  let left = bytes;
  while (left >= 999.5 && at < UNITS.length - 1) {
    left /= 1000;
    at += 1;
  }
  return `${at === 0 ? whole.format(Math.round(left)) : short.format(left)} ${UNITS[at]}`;
}

export function rate(perSecond) {
  return perSecond < 10 ? short.format(perSecond) : whole.format(Math.round(perSecond));
}

export function duration(ms) {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const seconds = ms / 1000;
  if (seconds < 10) return `${short.format(seconds)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${short.format(seconds / 3600)} h`;
  return `${whole.format(Math.round(seconds / 86400))} d`;
}

export function time(ms) {
  if (typeof ms !== "number" || Math.abs(ms) > MOST_TIME_MS) return String(ms);
  if (ms < 0) return "no time";
  const date = new Date(ms);
  const two = (number) => String(number).padStart(2, "0");
  const clock = [date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(":");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  const exact = `${clock}.${String(date.getMilliseconds()).padStart(3, "0")}`;
  return new Date().toDateString() === date.toDateString() ? exact : `${day} ${exact}`;
}

export function ago(ms) {
  if (typeof ms !== "number" || ms < 0) return "";
  const passed = Date.now() - ms;
  return passed < 1500 ? "just now" : `${duration(passed < 60_000 ? Math.round(passed / 1000) * 1000 : passed)} ago`;
}

// Singular where there is one.
export function many(number, one, more = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : more}`;
}

export function cleanup(policy) {
  return { delete: "until too old", compact: "newest of each key" }[policy] ?? policy;
}

// JSON set out in lines. Its tokens stay as they are: parsed and told again, large numbers would be others.
export function setOut(text) {
  if (!/^\s*[[{]/.test(text)) return text;
  try {
    JSON.parse(text);
  } catch {
    return text;
  }
  let depth = 0;
  let out = "";
  let last = "";
  const line = () => `\n${"  ".repeat(depth)}`;
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g)) {
    const isEnd = token === "}" || token === "]";
    if (isEnd) depth -= 1;
    const isEmpty = isEnd && (last === "{" || last === "[");
    if (!isEmpty && (isEnd || last === "{" || last === "[" || last === ",")) out += line();
    out += token === ":" ? ": " : token;
    if (token === "{" || token === "[") depth += 1;
    if (depth > MOST_DEPTH) return text; // or brackets alone would make a text of any size
    last = token;
  }
  return out;
}
