// A server that speaks MySQL's protocol, calls itself 8.0 and is not MySQL: go-mysql-server, in memory, on a port of
// 127.0.0.1 that it prints. It ends with its standard input.
package main

import (
	"fmt"
	"io"
	"net"
	"os"

	sqle "github.com/dolthub/go-mysql-server"
	"github.com/dolthub/go-mysql-server/memory"
	"github.com/dolthub/go-mysql-server/server"
	"github.com/dolthub/go-mysql-server/sql"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fail(err)
	}
	database := memory.NewDatabase("sbtest")
	database.BaseDatabase.EnablePrimaryKeyIndexes()
	provider := memory.NewDBProvider(database)
	engine := sqle.NewDefault(provider)
	config := server.Config{Protocol: "tcp", Address: listener.Addr().String(), Listener: listener}
	running, err := server.NewServer(config, engine, sql.NewContext, memory.NewSessionBuilder(provider), nil)
	if err != nil {
		fail(err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	if err := running.Start(); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
