package apiserver

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"
)

func TestABadFileIsReportedOnceAndNotWhileItIsWritten(t *testing.T) {
	certificate, authority := errors.New("--tls-cert-file: bad"), errors.New("--client-ca-file: bad")
	checks := [][]error{
		nil, {certificate}, nil, // the key was written after the certificate
		{certificate}, {certificate, authority}, {certificate, authority}, {authority}, nil,
		{certificate}, {certificate}, // again
	}
	const want = "--tls-cert-file --client-ca-file --tls-cert-file"
	synctest.Test(t, func(t *testing.T) {
		logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true)))
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
		next := 0
		check := func() []error {
			next++
			return checks[next-1]
		}
		go reportBadFiles(ctx, check, clock.RealClock{})
		time.Sleep(time.Duration(len(checks))*badFilesInterval + time.Second) // of the test's clock
		synctest.Wait()
		cancel()
		sink, ok := logger.GetSink().(ktesting.Underlier)
		if !ok {
			t.Fatal("the logger has no buffer")
		}
		var got []string
		for _, entry := range sink.GetBuffer().Data() {
			flag, _, _ := strings.Cut(entry.Err.Error(), ":")
			got = append(got, flag)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("reported %v, want %s", got, want)
		}
	})
}
