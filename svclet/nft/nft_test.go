package nft

import (
	"strings"
	"testing"
)

func TestAnOldKernelIsRefused(t *testing.T) {
	for release, want := range map[string]string{
		"5.13.0": "", "5.14.0-427.13.1.el9_4.x86_64": "", "6.1.0-18-amd64": "", "6.18.44+": "", "10.0.1-rc1": "",
		"5.12.19-generic":          "the kernel is Linux 5.12.19-generic, older than 5.13",
		"4.18.0-553.el8_10.x86_64": "the kernel is Linux 4.18.0-553.el8_10.x86_64, older than 5.13",
		"unknown":                  "read the release of the kernel",
	} {
		if err := checkKernel(release); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", release, err, want)
		}
	}
	if !strings.Contains(Remedy, "Linux 5.13 ") {
		t.Error(Remedy)
	}
}
