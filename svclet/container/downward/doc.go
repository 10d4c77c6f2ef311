// Package downward owns the downward API: the values of fieldRef and
// resourceFieldRef, for environment variables and files.
package downward
