// Package doors is how a program of this folder is told what to do, and says what came of it: by lines, as
// tests/cluster/stock/by_lines.py has them.
package doors

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
)

// AtOnce records are copied in one transaction.
const AtOnce = 20

var saying sync.Mutex

func Say(format string, words ...any) {
	saying.Lock()
	defer saying.Unlock()
	fmt.Printf(format+"\n", words...)
}

func OrEnd(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Records are those of the input, until it ends.
func Records(each func(key, value string)) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), " ")
		each(key, value)
	}
}

// Working is over when the input ends.
func Working() context.Context {
	working, end := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		end()
	}()
	return working
}

// Client is what a library can do; what it cannot is nil.
type Client struct {
	Create func(topic string, partitions int)
	Send   func(topic, codec string)
	Read   func(topic, group string)
	Copy   func(from, to, name string)
}

// Obey does what the command line says, with a client of the servers that it names.
func Obey(client func(servers []string) Client) {
	words := append(os.Args[3:], "", "")
	made := client(strings.Split(os.Args[2], ","))
	switch os.Args[1] {
	case "create":
		partitions, err := strconv.Atoi(words[1])
		OrEnd(err)
		made.Create(words[0], partitions)
	case "send":
		made.Send(words[0], words[1])
	case "read":
		made.Read(words[0], words[1])
	case "copy":
		made.Copy(words[0], words[1], words[2])
	}
}
