package apiserver

import (
	"context"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// badFilesInterval is how often the files of certificates are checked.
const badFilesInterval = 20 * time.Second

// reportBadFiles logs each error that check returns of files that the server reads again
// when they change, until ctx is done. The libraries that read the files keep the last good
// content, and name neither flag nor file. An error is logged once, and only if the next
// check has it, too: a certificate and its key are not written at the same time.
func reportBadFiles(ctx context.Context, check func() []error, clock clock.WithTicker) {
	ticker := clock.NewTicker(badFilesInterval)
	defer ticker.Stop()
	logged := map[string]bool{} // the errors of the last check
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		found := map[string]bool{}
		for _, err := range check() {
			text := err.Error()
			done, again := logged[text]
			if again && !done {
				klog.FromContext(ctx).Error(err, "Failed to reload a file, the last good one stays in force")
			}
			found[text] = again
		}
		logged = found
	}
}
