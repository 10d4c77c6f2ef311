// Package batch declares the kinds of the batch group.
package batch

import "svc.dev/svc/apis/resource"

// Kinds returns the kinds of the batch group.
func Kinds() []resource.Declaration {
	return []resource.Declaration{
		jobs,
		cronJobs,
	}
}
