// Package manifest owns files of Kubernetes objects as people write them: it splits
// them into documents and objects, with the lines that these are on, and writes changed
// documents back so that comments, order and formatting stay.
package manifest
