// Package lines is the small language between the tests and a client in Go: {"id": 7, "do":
// "write", ...} on standard input is answered by {"id": 7, "got": ...} or {"id": 7, "error": "..."}
// on standard output, in any order, each request in a goroutine of its own. Verbs and their words:
// driven.py beside this folder.
package lines

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"sync"
	"time"
)

// Header is a name and a value.
type Header struct {
	Name  string
	Value []byte
}

// UnmarshalJSON reads a pair.
func (h *Header) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&h.Name, &h.Value})
}

// MarshalJSON writes a pair.
func (h Header) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{h.Name, h.Value})
}

// Record is one that is to be written, or was read.
type Record struct {
	Topic     string   `json:"topic"`
	Partition *int32   `json:"partition"`
	Offset    int64    `json:"offset"`
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []Header `json:"headers"`
	Timestamp *int64   `json:"timestamp"`
}

// Request is one of any verb; what a verb does not know stays empty.
type Request struct {
	ID      int    `json:"id"`
	Do      string `json:"do"`
	Of      int    `json:"of"`
	Address string `json:"address"`

	Topic       string            `json:"topic"`
	Topics      []string          `json:"topics"`
	Pattern     string            `json:"pattern"`
	Records     []Record          `json:"records"`
	Codec       string            `json:"codec"`
	Acks        string            `json:"acks"`
	Idempotent  bool              `json:"idempotent"`
	Transaction string            `json:"transaction"`
	Abort       bool              `json:"abort"`
	Committed   bool              `json:"committed"`
	Count       int               `json:"count"`
	Group       string            `json:"group"`
	Ms          int               `json:"ms"`
	Client      string            `json:"client"`
	Settings    map[string]string `json:"settings"`

	Partitions int32              `json:"partitions"`
	Partition  int32              `json:"partition"`
	Configs    map[string]*string `json:"configs"`
	Resource   string             `json:"resource"`
	Name       string             `json:"name"`
	Values     map[string]*string `json:"values"`
	Without    []string           `json:"without"`
	At         string             `json:"at"`
	Before     map[int32]int64    `json:"before"`
	Offsets    map[int32]int64    `json:"offsets"`
	Node       int32              `json:"node"`
	Nodes      []int32            `json:"nodes"`
	Key        string             `json:"key"`
	Value      *float64           `json:"value"`
}

// Serve answers requests until there are no more.
func Serve(run func(context.Context, *Request) (any, error)) {
	out := json.NewEncoder(os.Stdout)
	var writing sync.Mutex
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF {
			return
		}
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			var r Request
			err := json.Unmarshal(line, &r)
			var got any
			if err == nil {
				got, err = run(ctx, &r)
			}
			answer := map[string]any{"id": r.ID, "got": got}
			if err != nil {
				answer = map[string]any{"id": r.ID, "error": err.Error()}
			}
			writing.Lock()
			defer writing.Unlock()
			out.Encode(answer)
		}()
	}
}
