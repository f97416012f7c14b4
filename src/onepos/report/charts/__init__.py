"""All charts, as SVG: `canvas` draws and themes, the other modules hold one kind of chart each."""
