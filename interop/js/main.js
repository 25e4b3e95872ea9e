// The JavaScript SDK's part: runs the role that the context names and prints JSON lines.

import { readFileSync } from "node:fs";
import { setLogLevel, AzureLogger } from "@azure/logger";
import * as cases from "./cases.js";
import * as processor from "./processor.js";
import * as rich from "./rich.js";
import { NotOffered, say } from "./client.js";

const SECONDS_MAX = 60;

async function runCases(context) {
  for (const name of context.cases) {
    const started = Date.now();
    let result = "pass";
    let detail = "";
    try {
      detail = (await within(SECONDS_MAX, cases[name](context))) ?? "";
    } catch (error) {
      result = error instanceof NotOffered ? "n/a" : "fail";
      detail = error instanceof NotOffered ? error.message : `${error.name}: ${error.message}`;
      console.error(name, error);
    }
    say({ case: name, result, detail, ms: Date.now() - started });
  }
}

function within(seconds, promise) {
  const late = new Promise((_, reject) => setTimeout(() => reject(new Error(`no end within ${seconds} s`)), seconds * 1000).unref());
  return Promise.race([promise, late]);
}

process.on("unhandledRejection", (error) => console.error("unhandled rejection", error));
AzureLogger.log = (...line) => console.error(new Date().toISOString(), ...line);
setLogLevel("warning");

const context = JSON.parse(readFileSync(process.argv[2]));
if (context.role === "cases") await runCases(context);
else if (context.role in processor) await processor[context.role](context);
else await rich[context.role](context);
process.exit(0);
