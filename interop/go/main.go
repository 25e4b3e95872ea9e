// The Go SDK's part: runs the role that the context names and prints JSON lines.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

const caseTimeMax = 60 * time.Second

// Setting is what the harness says about the hub.
type Setting struct {
	Role                string            `json:"role"`
	Cases               []string          `json:"cases"`
	ConnectionString    string            `json:"connection_string"`
	BadKey              string            `json:"bad_key"`
	TLSConnectionString string            `json:"tls_connection_string"`
	TLSAuthority        string            `json:"tls_authority"`
	Hubs                map[string]int    `json:"hubs"`
	Keys                map[string]string `json:"keys"`
	Rules               map[string]string `json:"rules"`
	Blob                struct {
		ConnectionString string `json:"connection_string"`
		Container        string `json:"container"`
	} `json:"blob"`
	IntervalMs int                        `json:"interval_ms"`
	ExpiryMs   int                        `json:"expiry_ms"`
	Writer     string                     `json:"writer"`
	Partition  string                     `json:"partition"`
	Properties map[string][2]any          `json:"properties"`
	Bodies     map[string]json.RawMessage `json:"bodies"`
	Expected   map[string]int             `json:"expected"`
}

// notOffered says that the SDK has no such thing.
type notOffered string

func (why notOffered) Error() string { return string(why) }

func main() {
	text, err := os.ReadFile(os.Args[1])
	var setting Setting
	if err == nil {
		err = json.Unmarshal(text, &setting)
	}
	if err == nil {
		switch setting.Role {
		case "cases":
			runCases(setting)
		case "processor":
			err = processor(context.Background(), setting)
		case "feeder":
			err = feeder(context.Background(), setting)
		case "write":
			err = writeRich(context.Background(), setting)
		case "read":
			err = readRich(context.Background(), setting)
		default:
			err = fmt.Errorf("no such role: %s", setting.Role)
		}
	}
	if err != nil {
		say(map[string]any{"error": err.Error()})
		os.Exit(1)
	}
}

func runCases(setting Setting) {
	for _, name := range setting.Cases {
		started := time.Now()
		result, detail := "pass", ""
		run, found := cases[name]
		err := errors.New("this program has no such case")
		if found {
			ctx, cancel := context.WithTimeout(context.Background(), caseTimeMax)
			err = run(ctx, setting)
			cancel()
		}
		var no notOffered
		if errors.As(err, &no) {
			result, detail = "n/a", string(no)
		} else if err != nil {
			result, detail = "fail", err.Error()
		}
		say(map[string]any{"case": name, "result": result, "detail": detail, "ms": time.Since(started).Milliseconds()})
	}
}

var (
	output sync.Mutex
	input  = bufio.NewReader(os.Stdin)
)

// say prints one line for the harness.
func say(line map[string]any) {
	text, _ := json.Marshal(line)
	output.Lock()
	defer output.Unlock()
	fmt.Println(string(text))
}

// told gives the harness's next line; nil when it has closed the pipe.
func told() map[string]any {
	line, err := input.ReadBytes('\n')
	if err != nil {
		return nil
	}
	var message map[string]any
	_ = json.Unmarshal(line, &message)
	return message
}
