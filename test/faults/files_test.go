package faults

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"svc.dev/svc/test/launch"
)

// TestFilesArePrivateAndKeptByARestart checks the files that the first start creates, and
// that the second keeps them.
func TestFilesArePrivateAndKeptByARestart(t *testing.T) {
	g := NewWithT(t)
	dir := filepath.Join(tempDir(t), "data")
	first := up(t, dir)
	g.Expect(filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		var info fs.FileInfo
		if err == nil {
			info, err = entry.Info()
		}
		if errors.Is(err, fs.ErrNotExist) { // etcd has temporary files
			return nil
		}
		if err != nil {
			return err
		}
		if info.Mode().IsRegular() {
			g.Expect(info.Mode().Perm()&0o077).To(BeZero(), "%s has mode %s", path, info.Mode())
		}
		return nil
	})).To(Succeed())
	info, err := os.Stat(dir)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(info.Mode().Perm()).To(Equal(fs.FileMode(0o700)))

	authority := first.Config.CAData
	g.Expect(authority).NotTo(BeEmpty())
	_, err = first.Stop(launch.Patience)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(up(t, dir).Config.CAData).To(Equal(authority), "the keys stay")
}
