// Flushes from four goroutines, 30 times each, and ten times more: fsync 120, fdatasync 10.
package main

import (
	"os"
	"sync"
	"syscall"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	file, err := os.Create(os.Args[1])
	must(err)
	var group sync.WaitGroup
	for range 4 {
		group.Add(1)
		go func() {
			defer group.Done()
			for range 30 {
				must(file.Sync())
			}
		}()
	}
	group.Wait()
	for range 10 {
		must(syscall.Fdatasync(int(file.Fd())))
	}
}
