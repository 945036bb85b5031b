package billing

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"testing"
)

// server is a broker for tests: `trilogue serve --test`, which ends when its standard input is closed.
type server struct {
	Kafka  string `json:"kafka"`
	Pulsar string `json:"pulsar"`
	TubeMQ string `json:"tubemq"`
	Test   string `json:"test"`
}

// startServer starts a broker that the test ends.
func startServer(t *testing.T) *server {
	t.Helper()
	program := os.Getenv("TRILOGUE")
	if program == "" {
		program = "trilogue"
	}
	command := exec.Command(program, "serve", "--test")
	command.Stderr = os.Stderr
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		input.Close()
		command.Wait()
	})
	line, err := bufio.NewReader(output).ReadBytes('\n')
	if err != nil {
		t.Fatalf("%s serve --test did not start: %v", program, err)
	}
	started := &server{}
	if err := json.Unmarshal(line, started); err != nil {
		t.Fatal(err)
	}
	return started
}

// call sends a request below /test and decodes the reply into result, unless that is nil.
func (s *server) call(method, path string, body, result any) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return err
	}
	if body == nil {
		encoded = nil
	}
	request, err := http.NewRequest(method, s.Test+path, bytes.NewReader(encoded))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s", method, path, content)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(content, result)
}
