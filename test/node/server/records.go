package main

import (
	"bufio"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// records is a file of records, as a database has one: a record is on the disk when its
// request is answered.
type records struct {
	mu   sync.Mutex
	file *os.File
	// sum is the checksum of all records.
	sum uint32
}

// openRecords opens a file of records, or creates one, and checks each record. It removes
// the beginning of a last one that was not written completely; any other damage is an
// error.
func openRecords(path string) (*records, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	r := &records{file: file}
	end, err := r.check()
	if err == nil {
		err = errors.Join(file.Truncate(end), syncDir(filepath.Dir(path)))
	}
	if err == nil {
		_, err = file.Seek(end, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
	}
	return r, nil
}

// check reads all records, and returns where the last one ends.
func (r *records) check() (end int64, err error) {
	reader := bufio.NewReader(r.file)
	for {
		line, err := reader.ReadString('\n')
		switch {
		case errors.Is(err, io.EOF):
			return end, nil
		case err != nil:
			return 0, err
		}
		sum, record, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		next := crc32.Update(r.sum, crc32.IEEETable, []byte(record))
		if sum != fmt.Sprintf("%08x", next) {
			return 0, fmt.Errorf("the record at %d is damaged, or one before it is missing: %q", end, line)
		}
		r.sum, end = next, end+int64(len(line))
	}
}

// add writes a record, and returns when it is on the disk.
func (r *records) add(record string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := crc32.Update(r.sum, crc32.IEEETable, []byte(record))
	if _, err := fmt.Fprintf(r.file, "%08x %s\n", next, record); err != nil {
		return err
	}
	r.sum = next
	return r.file.Sync()
}

func (r *records) serve(w http.ResponseWriter, request *http.Request) {
	record := request.FormValue("record")
	if record == "" || strings.Contains(record, "\n") {
		http.Error(w, "record must be one line", http.StatusBadRequest)
		return
	}
	if err := r.add(record); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) // what is on the disk is not known
	}
}

// syncDir writes the entries of a directory to the disk.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
