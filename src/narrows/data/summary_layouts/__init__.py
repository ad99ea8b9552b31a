"""The layouts of published summary data, a small file each; `narrows.data.summaries` names them."""
